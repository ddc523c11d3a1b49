"""What is rendered is what the operator would apply."""

from pathlib import Path
from typing import Any

import yaml

from tests.builders import HUB, VERSIONS, an_engine_object, smollm2_facts
from tests.golden import test_manifests as golden
from trtllm_operator.api.model_facts import ModelStatus
from trtllm_operator.cli.output import to_yaml

from .harness import CONFIG, llmd, manifest, written


def facts(folder: Path) -> Path:
    model = ModelStatus(source="x", facts=smollm2_facts(), versions=VERSIONS)
    return written(folder / "facts.yaml", to_yaml(model.to_json()))


def kinds(text: str) -> list[tuple[str, str]]:
    return [(doc["kind"], doc["metadata"]["name"]) for doc in yaml.safe_load_all(text)]


def test_without_a_model_only_what_does_not_depend_on_it(tmp_path: Path) -> None:
    result = llmd("render", manifest(tmp_path))
    assert result.exit_code == 0
    assert [kind for kind, _ in kinds(result.stdout)] == ["Job", "Service", "Service"]
    assert "left out: LLMDeployment smollm2: everything that follows from the model" in result.stderr


def test_with_facts_everything_in_the_order_in_which_it_comes_to_be(tmp_path: Path) -> None:
    result = llmd("render", manifest(tmp_path, spec={"replicas": 2}), "--facts", facts(tmp_path))
    assert (result.exit_code, result.stderr) == (0, "")
    assert [kind for kind, _ in kinds(result.stdout)] == [
        "Job",
        "Service",
        "Service",
        "ControllerRevision",
        "LLMEngine",
        "PersistentVolumeClaim",
        "Job",
        "StatefulSet",
        "StatefulSet",
    ]


def test_the_manifests_are_those_of_the_operator(tmp_path: Path) -> None:
    result = llmd("render", manifest(tmp_path), "--facts", facts(tmp_path))
    rendered = {(doc["kind"], doc["metadata"]["name"]): doc for doc in yaml.safe_load_all(result.stdout)}
    expected: dict[str, Any] = yaml.safe_load((Path(golden.__file__).parent / "statefulset.yaml").read_text())
    group = rendered[("StatefulSet", "smollm2-0")]
    assert group["spec"]["template"]["spec"] == expected["spec"]["template"]["spec"]


def test_a_hub_model_has_the_namespaces_cache(tmp_path: Path) -> None:
    result = llmd("render", manifest(tmp_path, spec=HUB), "-n", "team")
    first = next(yaml.safe_load_all(result.stdout))
    assert (first["kind"], first["metadata"]["namespace"]) == ("PersistentVolumeClaim", "team")


def test_from_a_config_alone_the_key_is_a_placeholder_and_that_is_said(tmp_path: Path) -> None:
    config = written(tmp_path / "config.json", CONFIG)
    result = llmd("render", manifest(tmp_path), "--model-config", config)
    assert result.exit_code == 0
    assert (
        "warning: LLMDeployment smollm2: the engine's key, and the names made of it, are placeholders" in result.stderr
    )


def test_an_engine_by_itself_is_fetched_and_built(tmp_path: Path) -> None:
    path = written(tmp_path / "engine.yaml", to_yaml(an_engine_object()))
    result = llmd("render", path, "--facts", facts(tmp_path))
    assert [kind for kind, _ in kinds(result.stdout)] == ["Job", "PersistentVolumeClaim", "Job"]


def test_what_is_refused_is_not_rendered(tmp_path: Path) -> None:
    result = llmd("render", manifest(tmp_path, spec={"tensorParallelSize": 2}), "--facts", facts(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "spec.tensorParallelSize" in result.stderr


def test_one_object_at_a_time(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    path.write_text(f"{path.read_text()}---\n{path.read_text().replace('name: smollm2', 'name: other')}")
    result = llmd("render", path)
    assert result.exit_code == 1
    assert "holds 2 objects (LLMDeployment smollm2, LLMDeployment other)" in result.stderr
