"""Everything that is wrong with a file is told in one answer, at its line; what is fine is exit code 0."""

import json
import sys
from pathlib import Path

import pytest

from tests.builders import HUB, NOW, a_deployment_object, an_engine_object, smollm2_facts
from trtllm_operator.api.deployment import LLMDeployment
from trtllm_operator.api.model_facts import ModelStatus
from trtllm_operator.cli.output import to_yaml, to_yaml_documents
from trtllm_operator.cluster.admission import answer_of
from trtllm_operator.decide.deployment import decide_deployment
from trtllm_operator.decide.snapshot import DeploymentSnapshot
from trtllm_operator.resolve.defaults import Defaults

from .harness import CONFIG, FakeTerminal, a_node, answer, lines, llmd, manifest, written

CONFIG_MAP = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"


def test_what_is_fine_is_exit_code_zero(tmp_path: Path) -> None:
    result = llmd("validate", manifest(tmp_path))
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path}/llmd.yaml: LLMDeployment smollm2: valid\n")


def test_every_problem_is_told_at_its_line_and_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.yaml",
        "apiVersion: v1\n"
        "kind: LLMDeployment\n"
        "metadata: {name: Smol}\n"
        "spec:\n"
        "  tensorParalelSize: 2\n"
        "  model: owner/name\n"
        "  buildConfig:\n"
        "    maxSeqLen: 0\n",
    )
    result = llmd("validate", path)
    assert result.exit_code == 1
    heads = [line.split(": error: ") for line in lines(result.stdout) if ": error: " in line]
    assert [(where.removeprefix(f"{path}:"), said.split(":")[0]) for where, said in heads] == [
        ("1:1", "apiVersion"),
        ("3:12", "metadata.name"),
        ("5:3", "spec.tensorParalelSize"),
        ("8:5", "spec.buildConfig.maxSeqLen"),
    ]
    assert "    hint: did you mean tensorParallelSize?" in lines(result.stdout)
    assert lines(result.stdout)[-1] == f"{path}: LLMDeployment Smol: refused (4 errors, 1 warning)"


def test_a_problem_of_a_missing_field_stands_at_what_is_around_it(tmp_path: Path) -> None:
    result = llmd("validate", manifest(tmp_path, spec={"modelVolume": None}), "-o", "json")
    (error,) = answer(result)["errors"]
    assert error["path"] == "spec.modelVolume"
    assert (error["line"], error["column"]) == (5, 1)


def test_the_answer_for_machines_has_its_documented_shape(tmp_path: Path) -> None:
    result = llmd("validate", manifest(tmp_path, spec={"replicas": -1}), "-o", "json")
    assert result.exit_code == 1
    verdict = answer(result)
    assert set(verdict) == {"kind", "name", "file", "valid", "errors", "warnings", "adjustments", "resolved"}
    assert (verdict["kind"], verdict["name"], verdict["valid"]) == ("LLMDeployment", "smollm2", False)
    (error,) = verdict["errors"]
    assert set(error) >= {"path", "code", "message", "line", "column"}
    assert (error["path"], error["code"]) == ("spec.replicas", "InvalidSpec")


def test_several_objects_are_one_answer_with_one_verdict(tmp_path: Path) -> None:
    good, bad = manifest(tmp_path), manifest(tmp_path, name="bad", spec={"replicas": -1}, file="bad.yaml")
    result = llmd("validate", good, bad, "-o", "json")
    assert result.exit_code == 1
    verdict = answer(result)
    assert verdict["valid"] is False
    assert [(one["name"], one["valid"]) for one in verdict["documents"]] == [("smollm2", True), ("bad", False)]


def test_yaml_says_the_same_as_json(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    assert llmd("validate", path, "-o", "yaml").stdout == to_yaml(answer(llmd("validate", path, "-o", "json")))


def test_documents_of_other_kinds_are_skipped_and_said(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    path.write_text(path.read_text() + CONFIG_MAP)
    result = llmd("validate", path)
    assert result.exit_code == 0
    assert lines(result.stdout)[-1].endswith(": skipped: ConfigMap settings")


def test_a_list_of_kubectl_is_validated_item_by_item(tmp_path: Path) -> None:
    items = [an_engine_object("a"), an_engine_object("b", spec={"toolchain": "nothing"})]
    path = written(tmp_path / "list.yaml", to_yaml({"apiVersion": "v1", "kind": "List", "items": items}))
    verdict = answer(llmd("validate", path, "-o", "json"))
    assert [(one["name"], one["valid"]) for one in verdict["documents"]] == [("a", True), ("b", False)]
    (error,) = verdict["documents"][1]["errors"]
    assert path.read_text().splitlines()[error["line"] - 1].strip() == "toolchain: nothing"


def test_a_misspelt_kind_of_ours_is_refused_and_the_object_is_judged(tmp_path: Path) -> None:
    path = manifest(tmp_path, spec={"replicas": -1})
    path.write_text(path.read_text().replace("kind: LLMDeployment", "kind: LlmDeployment"))
    verdict = answer(llmd("validate", path, "-o", "json"))
    assert [error["path"] for error in verdict["errors"]] == ["kind", "spec.replicas"]
    assert "did you mean LLMDeployment?" in verdict["errors"][0]["hint"]


def test_a_key_of_a_file_writes_nothing_on_the_terminal(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    path.write_text(path.read_text() + '  "\\u001b[31mx": 1\n')
    result = llmd("validate", path)
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert "\\x1b[31mx" in result.stdout


def test_nodes_may_come_as_the_api_server_lists_them(tmp_path: Path) -> None:
    listed = {"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {"name": "gpu-a"}}]}
    nodes = written(tmp_path / "nodes.json", json.dumps(listed))
    assert llmd("validate", manifest(tmp_path), "--nodes", nodes).exit_code == 0


def test_standard_input_is_a_file_too(tmp_path: Path) -> None:
    result = llmd("validate", "-", stdin=manifest(tmp_path, spec={"replicas": -1}).read_text())
    assert result.exit_code == 1
    assert result.stdout.startswith("<stdin>:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no LLMDeployment or LLMEngine"),
        (CONFIG_MAP, "holds no LLMDeployment or LLMEngine; there is: ConfigMap settings"),
        ("tensor_parallel_size: 2\n", "llmd import FILE --model MODEL"),
        ("a: [\n", "is no YAML"),
    ],
)
def test_a_file_that_holds_nothing_of_ours_is_bad_input(tmp_path: Path, text: str, said: str) -> None:
    result = llmd("validate", written(tmp_path / "a.yaml", text))
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("metadata: {name: x, label: {}}", "metadata.label", "did you mean labels?"),
        ("metadata: {name: x, labels: {a: 1}}", "metadata.labels[a]", "1 is no text; put the value in quotes"),
        ("metadata: {name: 12}", "metadata.name", "12 is no text; put the name in quotes"),
        ("metadata: {}", "metadata.name", "is required"),
        ("metadata: {name: x-ranks}", "metadata.name", "another deployment's Service"),
        (f"metadata: {{name: {'x' * 41}}}", "metadata.name", "use at most 40"),
        ("metadata: {name: x}\nmodel: a/b", "model", "it belongs below spec: spec.model"),
        ("metadata: {name: x}\nSpec: {}", "Spec", "did you mean spec?"),
        ("metadata: x", "metadata", "must be a mapping"),
    ],
)
def test_what_is_around_the_spec_is_checked_as_the_api_server_does(
    tmp_path: Path, text: str, path: str, said: str
) -> None:
    head = "apiVersion: inference.trtllm-operator.dev/v1alpha1\nkind: LLMDeployment\nspec: {model: a/b}\n"
    verdict = answer(llmd("validate", written(tmp_path / "a.yaml", head + text + "\n"), "-o", "json"))
    (error,) = verdict["errors"]
    assert error["path"] == path
    assert said in f"{error['message']}; {error.get('hint')}"


def test_a_models_config_adds_the_checks_that_need_the_model(tmp_path: Path) -> None:
    path = manifest(tmp_path, spec={"buildConfig": {"maxSeqLen": 100_000}})
    config = written(tmp_path / "config.json", CONFIG)
    assert llmd("validate", path).exit_code == 0
    for given in (config, tmp_path):
        (error, *_) = answer(llmd("validate", path, "--model-config", given, "-o", "json"))["errors"]
        assert error["path"].startswith("spec.buildConfig.maxSeqLen")


def test_facts_of_the_operator_add_them_too(tmp_path: Path) -> None:
    path = manifest(tmp_path, spec={"buildConfig": {"maxSeqLen": 100_000}})
    model = ModelStatus(source="x", facts=smollm2_facts(), versions={"torch": "1"}).to_json()
    for facts in ({"status": {"model": model}}, model, smollm2_facts().to_dict()):
        file = written(tmp_path / "facts.yaml", to_yaml(facts))
        assert llmd("validate", path, "--facts", file).exit_code == 1


def test_nodes_add_the_checks_that_need_their_gpus(tmp_path: Path) -> None:
    path = manifest(tmp_path, spec={**HUB, "dtype": None, "buildConfig": None})
    config = written(tmp_path / "config.json", CONFIG)
    nodes = written(tmp_path / "nodes.yaml", to_yaml_documents([a_node("tiny", memory=128)]))
    result = llmd("validate", path, "--model-config", config, "--nodes", nodes, "-o", "json")
    assert result.exit_code == 1
    assert {error["code"] for error in answer(result)["errors"]} == {"DoesNotFitMemory"}


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--nodes", "kind: List\nitems: []\n", "holds no Node"),
        ("--facts", "a: 1\n", "holds no facts of a model"),
        ("--model-config", "[]", "is no object"),
        ("--model-config", "{", "is no JSON"),
        ("--config", "toolchian: torch\n", "config.toolchian"),
        ("--config", "kind: ConfigMap\n", "is a ConfigMap"),
    ],
)
def test_a_second_file_that_is_something_else_is_bad_input(tmp_path: Path, option: str, text: str, said: str) -> None:
    other = written(tmp_path / "other", text)
    result = llmd("validate", manifest(tmp_path), option, other)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"llmd: {other}: ")
    assert said in result.stderr


def test_the_operators_configuration_stands_in_for_what_is_not_written(tmp_path: Path) -> None:
    path = manifest(tmp_path, spec={"engine": {"toolchain": None}})
    config = written(tmp_path / "config.yaml", "toolchain: tensorrt_rtx\n")
    assert llmd("validate", path).exit_code == 0
    assert "the operator's default" in llmd("validate", path, "--config", config).stdout


def test_on_a_terminal_words_are_coloured_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trtllm_operator.cli.validate import validate

    def shown() -> str:
        terminal = FakeTerminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            validate([str(path)], model_config=None, facts=None, nodes=None, config=None, output=None)
        return terminal.getvalue()

    path = manifest(tmp_path, spec={"replicas": -1})
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31merror:\x1b[0m" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown()
    assert "\x1b" not in plain
    assert max(map(len, lines(plain.replace(str(tmp_path), "")))) <= 80


def test_admission_and_status_give_the_very_list_that_validation_gives(tmp_path: Path) -> None:
    """Of a spec that does not parse too: what the schema refuses, and what the rules refuse of the rest."""
    spec = {"replicas": -1, "tp_size": 2, "trustRemoteCode": True}
    obj = a_deployment_object(spec=spec)
    told = answer(llmd("validate", manifest(tmp_path, spec=spec), "-o", "json"))["errors"]
    paths = [error["path"] for error in told]
    assert set(paths) == {"spec.replicas", "spec.tp_size", "spec.trustRemoteCode"}

    admission = answer_of({"object": obj, "oldObject": None}, Defaults())
    assert [cause["field"] for cause in admission["status"]["details"]["causes"]] == paths
    snapshot = DeploymentSnapshot(deployment=LLMDeployment.of(obj), defaults=Defaults())
    assert [problem.path for problem in decide_deployment(snapshot, NOW).problems] == paths


def test_what_could_not_be_checked_is_said_at_the_spec(tmp_path: Path) -> None:
    result = answer(llmd("validate", manifest(tmp_path, spec={"tensorParallelSize": "2"}), "-o", "json"))
    assert [(error["path"], error["hint"]) for error in result["errors"]] == [
        ("spec.tensorParallelSize", "remove the quotes")
    ]
    assert [warning["path"] for warning in result["warnings"]] == ["spec"]
