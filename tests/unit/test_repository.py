"""What is written twice in this repository says the same in both places."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import trtllm_engine
import trtllm_operator
from tests import render
from trtllm_operator.cluster.kinds import KINDS
from trtllm_operator.resolve.defaults import Defaults

ROOT: Final = Path(__file__).resolve().parents[2]
README: Final = (ROOT / "README.md").read_text()
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())

Manifest = Mapping[str, Any]


def manifests(text: str) -> list[Manifest]:
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def find(text: str, kind: str, suffix: str = "") -> list[Manifest]:
    return [m for m in manifests(text) if m["kind"] == kind and m["metadata"]["name"].endswith(suffix)]


@pytest.fixture(scope="module")
def installation() -> str:
    return render.install_manifest()


@pytest.fixture(scope="module")
def namespaced() -> str:
    return render.render("--set", "watchNamespaces={team-a,team-b}")


def test_the_install_manifest_is_what_the_chart_renders(installation: str) -> None:
    assert (ROOT / "dist" / "install.yaml").read_text() == installation, "run: make dist"


def test_the_chart_carries_the_generated_definitions() -> None:
    ours = {file.name: file.read_text() for file in (ROOT / "crds").glob("*.yaml")}
    copies = {file.name: file.read_text() for file in (render.CHART / "files" / "crds").glob("*.yaml")}
    assert len(ours) == 2
    assert copies == ours, "run: make crds"


def test_all_versions_agree() -> None:
    chart = yaml.safe_load((render.CHART / "Chart.yaml").read_text())
    version = PROJECT["project"]["version"]
    assert [version] * 4 == [
        chart["version"],
        chart["appVersion"],
        trtllm_operator.__version__,
        trtllm_engine.__version__,
    ]


def test_the_chart_configures_the_operators_own_defaults(installation: str) -> None:
    (config,) = find(installation, "ConfigMap")
    assert Defaults.load(yaml.safe_load(config["data"]["config.yaml"])) == Defaults()


def test_every_operator_default_can_be_set_in_the_chart() -> None:
    values = yaml.safe_load((render.CHART / "values.yaml").read_text())
    elsewhere = {"engineImage", "servingImage", "imagePullPolicy", "imagePullSecrets"}
    names = {field.alias or name for name, field in Defaults.model_fields.items()}
    assert set(values["defaults"]) | elsewhere == names
    assert elsewhere < set(values)


def test_the_configuration_can_be_replaced_as_a_whole() -> None:
    arguments = ["--set", "defaults.hubEndpoint=https://hub.example.com", "--set", "defaults.storageClass=fast"]
    arguments += [
        "--set",
        "servingImage.repository=registry.example.com/engine",
        "--set",
        "imagePullSecrets[0].name=registry",
    ]
    (config,) = find(render.render(*arguments), "ConfigMap")
    defaults = Defaults.load(yaml.safe_load(config["data"]["config.yaml"]))
    assert defaults.hub_endpoint == "https://hub.example.com"
    assert defaults.storage_class == "fast"
    assert defaults.serving_image == "registry.example.com/engine:0.1.0"
    assert [secret.name for secret in defaults.image_pull_secrets] == ["registry"]


def test_a_misspelt_value_is_refused() -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render.render("--set", "defaults.toolchian=torch")
    assert "toolchian" in refused.value.stderr


# ---- rights: exactly the calls that the operator's client can make


def granted(*roles: Manifest) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of all rules."""
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(at_home: bool, everywhere: bool = True) -> Iterator[tuple[str, str, str]]:
    """`everywhere` False: without what belongs to no namespace."""
    for kind in (k for k in KINDS.values() if k.at_home is at_home and (everywhere or k.namespaced)):
        yield from ((kind.group, kind.plural, verb) for verb in kind.verbs)
        for name, verbs in kind.subresources.items():
            yield from ((kind.group, f"{kind.plural}/{name}", verb) for verb in verbs)


OWNER_REFERENCES: Final = {
    ("inference.trtllm-operator.dev", f"{plural}/finalizers", "update") for plural in ("llmdeployments", "llmengines")
}
"""No call of ours: what the admission plugin OwnerReferencesPermissionEnforcement asks for."""


def test_the_operator_gets_exactly_the_rights_that_its_calls_use(installation: str) -> None:
    (everywhere,) = find(installation, "ClusterRole", "trtllm-operator")
    assert granted(everywhere) == set(needed(at_home=False)) | OWNER_REFERENCES
    (leader,), (webhook,) = find(installation, "Role", "-leader"), find(installation, "ClusterRole", "-webhook")
    assert granted(leader, webhook) == set(needed(at_home=True))


def test_the_only_secret_that_the_operator_can_read_is_its_own_certificate(installation: str) -> None:
    """I12. `create` alone shows nothing of a Secret."""
    roles = [*find(installation, "ClusterRole"), *find(installation, "Role")]
    rules = [rule for role in roles for rule in role["rules"] if {"secrets", "*"} & set(rule["resources"])]
    reading = [rule for rule in rules if set(rule["verbs"]) != {"create"}]
    assert [rule.get("resourceNames") for rule in reading] == [["trtllm-operator-webhook"]]


def test_in_namespaced_mode_nothing_is_granted_outside_of_the_namespaces(namespaced: str) -> None:
    assert not find(namespaced, "ClusterRoleBinding")
    roles = [role for role in find(namespaced, "Role") if not role["metadata"]["name"].endswith("-leader")]
    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    assert granted(roles[0]) == set(needed(at_home=False, everywhere=False)) | OWNER_REFERENCES
    assert not find(namespaced, "ValidatingWebhookConfiguration")
    (deployment,) = find(namespaced, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"--namespace=team-a", "--namespace=team-b"} < set(container["args"])


def test_uninstalling_the_chart_keeps_the_users_deployments(installation: str) -> None:
    definitions = find(installation, "CustomResourceDefinition")
    assert [d["metadata"]["annotations"]["helm.sh/resource-policy"] for d in definitions] == ["keep", "keep"]


# ---- what people are told to type


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", ".ci/run"])
def test_every_make_command_in_the_documents_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    told = re.findall(r"(?:^|`)(?:[A-Z_]+=\S+ )*make ([a-z][a-z-]*(?: [a-z][a-z-]*)*)", text, re.MULTILINE)
    names = {name for group in told for name in group.split()}
    assert names
    assert names <= targets()


def test_every_file_that_the_readme_names_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    applied = re.findall(r"-f ([a-z][\w./-]+\.yaml)", README)
    assert links
    assert applied
    assert [path for path in {*links, *applied} if not (ROOT / path).exists()] == []


def test_setting_up_takes_two_commands() -> None:
    first_screen = "\n".join(README.splitlines()[:60])
    assert re.search(r"^make demo\b.*\nmake test\b", first_screen, re.MULTILINE)


# ---- locks


def locked(name: str) -> dict[str, str]:
    """Version by package."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^\s\\;]+)", text, re.MULTILINE))


def normal(requirement: str) -> str:
    """The package's name in a requirement, as locks spell it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = PROJECT["project"]
    operator = {normal(r) for r in project["dependencies"]}
    engine = {normal(r) for r in project["optional-dependencies"]["engine"]}
    development = {normal(r) for r in project["optional-dependencies"]["dev"]}
    assert operator <= set(locked("operator")), "run: make lock"
    assert engine <= set(locked("engine")), "run: make lock"
    assert operator | engine | development <= set(locked("dev")), "run: make lock"


def test_tests_run_with_the_versions_that_the_images_hold() -> None:
    development = locked("dev")
    for image in ("operator", "engine"):
        assert {name: development.get(name) for name in locked(image)} == locked(image)


def test_every_locked_file_has_a_hash() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        entries = re.split(r"\n(?=[a-z0-9])", lock.read_text().strip())
        assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
