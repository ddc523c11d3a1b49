"""Programs are pinned, built once, and taken from where the ecosystem keeps them if they are there."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.binaries import KUBERNETES_VERSION, MODULES, Module, binaries, binary, go_version
from tests.cluster.errors import HarnessError
from tests.cluster.paths import TOOL_MODULES


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRTLLM_OPERATOR_CACHE", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def test_every_staging_module_of_kubernetes_is_replaced_by_its_published_version() -> None:
    text = (TOOL_MODULES / "kubernetes" / "go.mod").read_text()
    published = KUBERNETES_VERSION.replace("v1.", "v0.")
    required = set(re.findall(r"^\t(k8s\.io/\S+) v0\.0\.0(?: // indirect)?$", text, re.MULTILINE))
    replaced = dict(re.findall(r"^\t(k8s\.io/\S+) => \S+ (\S+)$", text, re.MULTILINE))
    assert f"k8s.io/kubernetes {KUBERNETES_VERSION}" in text
    assert required <= set(replaced)
    assert set(replaced.values()) == {published}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_every_module_is_pinned_by_its_sums(module: Module) -> None:
    requirements = "require" in (module.folder() / "go.mod").read_text()
    assert (module.folder() / "go.sum").exists() == requirements


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.6 linux/amd64", (1, 26)),
        ("go version go1.27rc1 linux/amd64", (1, 27)),
        ("go version devel +abcdef linux/amd64", (0, 0)),
    ],
)
def test_the_version_of_go_is_read(text: str, version: tuple[int, int]) -> None:
    assert go_version(text) == version


def test_another_pin_is_another_folder() -> None:
    (etcd,) = (module for module in MODULES if module.name == "etcd")
    changed = Module(etcd.name, etcd.packages, {"main.version": "2"})
    assert etcd.home() == etcd.home()
    assert changed.home() != etcd.home()


def test_a_program_is_built_once_also_by_two_at_a_time(empty_cache: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(binary, ["pause", "pause"])
    assert first == second
    built = first.stat()
    assert binary("pause").stat().st_mtime_ns == built.st_mtime_ns
    assert [file.name for file in first.parent.iterdir()] == ["pause"]
    assert b"ld-linux" not in first.read_bytes(), "runs in an image that holds nothing else"


def test_programs_of_an_envtest_folder_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (assets / name).touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert binaries(["etcd", "kubectl"]) == {"etcd": assets / "etcd", "kubectl": assets / "kubectl"}


def test_an_unknown_program_is_refused_with_the_known_ones() -> None:
    with pytest.raises(HarnessError, match=r"unknown program 'k3s'; known are: kube-apiserver, .*helm"):
        binary("k3s")
