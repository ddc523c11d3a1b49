"""A plan says what would happen: engine, pods, GPUs, rollout, memory; and nothing is written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import (
    HUB,
    VERSIONS,
    a_deployment,
    a_deployment_spec,
    a_resolution,
    an_engine_object,
    smollm2_facts,
    some_defaults,
)
from trtllm_operator.api.deployment import LLMDeploymentSpec
from trtllm_operator.api.engine import LLMEngine
from trtllm_operator.api.model_facts import ModelStatus
from trtllm_operator.api.nodes import NodeFacts
from trtllm_operator.api.views import GroupView, Meta
from trtllm_operator.cli import observed as observing
from trtllm_operator.cli.observed import Observed
from trtllm_operator.cli.outlook import Outlook, look_ahead
from trtllm_operator.cli.output import to_yaml
from trtllm_operator.desired.controller_revision import freeze
from trtllm_operator.resolve.revision import revision_hash
from trtllm_operator.resolve.source import source_hash

from .harness import CONFIG, a_node, answer, lines, llmd, manifest, written


def ahead(
    spec: LLMDeploymentSpec, *, exact: bool = True, nodes: list[int] | None = None, observed: Observed | None = None
) -> Outlook:
    """`nodes`: GPUs of each."""
    seen = None if nodes is None else [NodeFacts.of(a_node(f"n{i}", gpus=gpus)) for i, gpus in enumerate(nodes)]
    return look_ahead(spec, a_resolution(spec), exact=exact, defaults=some_defaults(), nodes=seen, observed=observed)


def serving(spec: LLMDeploymentSpec, **engine: Any) -> Observed:
    """The spec's revision serves with all replicas; `engine` is the status of an engine with its key."""
    revision, resolution = revision_hash(spec), a_resolution(spec)
    deployment = a_deployment(status={"currentRevision": revision}, **spec.to_json())
    groups = [
        GroupView(meta=Meta(name=f"smollm2-{n}"), ordinal=n, revision=revision, ready=1, observed=True)
        for n in range(spec.replicas)
    ]
    status = {"key": resolution.engine_key, **engine}
    return Observed(
        deployment=deployment,
        revisions={revision: freeze(deployment, resolution, some_defaults())},
        groups=tuple(groups),
        engines=(LLMEngine.of(an_engine_object("e", status=status)),) if engine else (),
    )


def test_without_facts_the_key_is_unknown_and_nothing_is_made_up() -> None:
    outlook = ahead(a_deployment_spec(), exact=False)
    assert (outlook.engine.action, outlook.engine.key) == ("unknown", None)
    assert (outlook.replicas.pods, outlook.replicas.gpus_per_pod, outlook.replicas.parallel) == (1, 1, "tp1")


def test_with_facts_the_key_is_that_of_the_operator() -> None:
    spec = a_deployment_spec()
    assert ahead(spec).engine.key == a_resolution(spec).engine_key


@pytest.mark.parametrize(("phase", "action"), [("Ready", "reuse"), ("Building", "wait"), ("Pending", "wait")])
def test_an_engine_with_the_same_key_is_used(phase: str, action: str) -> None:
    spec = a_deployment_spec()
    engine = ahead(spec, observed=serving(spec, phase=phase)).engine
    assert (engine.action, engine.changed) == (action, ())


def test_another_engine_is_built_and_the_parts_of_the_key_that_differ_are_named() -> None:
    before, after = a_deployment_spec(), a_deployment_spec(buildConfig={"maxBatchSize": 16})
    outlook = ahead(after, observed=serving(before, phase="Ready"))
    assert (outlook.engine.action, outlook.engine.changed) == ("build", ("maxBatchSize: 8 -> 16",))
    assert outlook.change == f"revision {revision_hash(before)} (1 ready) is replaced by {revision_hash(after)}"


def test_more_replicas_replace_no_pod() -> None:
    before = a_deployment_spec()
    outlook = ahead(a_deployment_spec(replicas=3), observed=serving(before, phase="Ready"))
    assert outlook.change.startswith("no pod is replaced")
    assert outlook.change.endswith("; 2 replica(s) more")


def test_in_an_empty_namespace_everything_is_new() -> None:
    outlook = ahead(a_deployment_spec(), observed=Observed())
    assert (outlook.engine.action, outlook.change) == (
        "build",
        "a new deployment: the namespace has none of this name",
    )


@pytest.mark.parametrize(
    ("spec", "nodes", "surge", "downtime"),
    [
        ({"replicas": 2}, [2, 1], 1, False),
        ({"replicas": 2}, [2], 0, False),
        ({"replicas": 1}, [1], 0, True),
        ({"replicas": 1}, [2], 1, False),
        ({"replicas": 2, "strategy": {"type": "Recreate"}}, [8], 0, True),
        ({"replicas": 2, "serving": {"device": "cpu"}}, [0], 1, False),
        ({"replicas": 0}, [1], 1, False),
    ],
)
def test_the_rollout_fits_the_nodes(spec: dict[str, Any], nodes: list[int], surge: int, downtime: bool) -> None:
    outlook = ahead(a_deployment_spec(**spec), nodes=nodes)
    assert (outlook.limits.surge, outlook.downtime) == (surge, downtime)


def test_room_counts_only_nodes_that_the_spec_allows() -> None:
    spec = a_deployment_spec(engine={"target": {"gpuProduct": "Another-GPU"}})
    room = ahead(spec, nodes=[8]).room
    assert room is not None
    assert (room.nodes, room.replicas) == (0, 0)


def test_the_command_prints_the_plan_the_memory_and_what_is_chosen(tmp_path: Path) -> None:
    path = manifest(tmp_path, spec={**HUB, "dtype": None, "buildConfig": None})
    config = written(tmp_path / "config.json", CONFIG)
    nodes = written(tmp_path / "nodes.yaml", to_yaml(a_node("a")))
    result = llmd("plan", path, "--model-config", config, "--nodes", nodes)
    assert result.exit_code == 0
    words = [line.split()[0] for line in lines(result.stdout) if line.strip()]
    assert words[1:9] == ["model", "engine", "claim", "replicas", "GPUs", "change", "rollout", "downtime"]
    assert {"nodes", "weights", "cache", "together", "fits", "buildConfig.maxBatchSize"} <= set(words)


def test_a_large_model_alone_fits_one_gpu_without_a_word_from_the_user(tmp_path: Path) -> None:
    llama = {**json.loads(CONFIG), "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
    llama |= {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False}
    config = written(tmp_path / "config.json", json.dumps({**llama, "max_position_embeddings": 131072}))
    spec = dict.fromkeys(("modelVolume", "dtype", "buildConfig", "engine"))
    path = manifest(tmp_path, spec={**spec, "model": "meta-llama/Llama-3.1-8B-Instruct"})
    nodes = written(tmp_path / "nodes.yaml", to_yaml(a_node("a")))
    plan = answer(llmd("plan", path, "--model-config", config, "--nodes", nodes, "-o", "json"))
    assert (plan["valid"], plan["memory"]["fits"], plan["plan"]["gpus"]) == (True, True, 1)
    assert {change["path"] for change in plan["adjustments"]} >= {"spec.buildConfig.maxBatchSize"}


def test_the_plan_for_machines_is_the_verdict_and_more(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    config = written(tmp_path / "config.json", CONFIG)
    verdict = answer(llmd("validate", path, "--model-config", config, "-o", "json"))
    plan = answer(llmd("plan", path, "--model-config", config, "-o", "json"))
    assert {key: plan[key] for key in verdict} == verdict
    assert plan["plan"]["gpus"] == 1
    assert plan["memory"]["rows"][0]["what"] == "weights"


def test_a_spec_that_is_refused_has_no_plan(tmp_path: Path) -> None:
    result = llmd("plan", manifest(tmp_path, spec={"replicas": -1}), "-o", "json")
    assert result.exit_code == 1
    assert answer(result)["plan"] is None


def test_the_cluster_gives_the_models_facts_and_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = a_deployment_spec()
    model = ModelStatus(source=source_hash(spec, some_defaults()), facts=smollm2_facts(), versions=VERSIONS)
    before = serving(spec, phase="Ready")
    assert before.deployment is not None
    status = before.deployment.status.model_copy(update={"model": model})
    nodes = (NodeFacts.of(a_node("a", gpus=2)),)
    found = replace(before, deployment=replace(before.deployment, status=status), nodes=nodes)
    monkeypatch.setattr(observing, "observe", lambda namespace, name, **more: found)
    plan = answer(llmd("plan", manifest(tmp_path), "--context", "-o", "json"))["plan"]
    assert plan["engine"]["action"] == "reuse"
    assert plan["change"].startswith("no pod is replaced")
    assert plan["room"] == {"nodes": 1, "gpus": 2, "replicas": 2}


def test_without_a_cluster_the_context_is_bad_input(tmp_path: Path) -> None:
    kubeconfig = written(tmp_path / "kubeconfig", "apiVersion: v1\nkind: Config\n")
    result = llmd("plan", manifest(tmp_path), "--context", "--kubeconfig", kubeconfig)
    assert result.exit_code == 1
    assert "no way to a cluster" in result.stderr


def test_what_is_not_planned_is_said(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    alone = tmp_path / "engine.yaml"
    alone.write_text(yaml.safe_dump(an_engine_object("ada")))
    path.write_text(path.read_text() + "---\n" + alone.read_text() + "---\nkind: ConfigMap\nmetadata: {name: c}\n")
    said = llmd("plan", path).stdout
    assert "skipped: LLMEngine ada" in said
    assert "skipped: ConfigMap c" in said
    refused = llmd("plan", alone)
    assert refused.exit_code == 1
    assert "plan is for LLMDeployments; there is: LLMEngine ada" in refused.stderr
