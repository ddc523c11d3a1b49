"""A build that cannot succeed says why within ten seconds, is not tried again, and leaves nothing half-written."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from tests.node.world import Namespace, Object, condition, deployment, engine
from tests.operator_process import OperatorProcess

WITHIN = 10.0
"""Seconds from the end of the pod to the status."""


def corrupt(checkpoint: Path) -> None:
    """Cut the weights in the middle: the header still promises all of them."""
    weights = checkpoint / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()  # the file may have a second name elsewhere
    weights.write_bytes(content[: len(content) // 2])


def rename_architecture(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").unlink()
    (checkpoint / "config.json").write_text(
        json.dumps(config | {"architectures": ["MambaForCausalLM"], "model_type": "mamba"})
    )


def test_a_bad_model_path_names_the_path(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(deployment("lost", model="/models/nowhere"))
    stalled = namespace.wait_stalled("llmdeployment", "lost", 90)
    assert_told_in_time(namespace, stalled, "ModelNotFound", "/models/nowhere")


def test_a_file_that_the_pod_may_not_read_is_named_with_the_remedy(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    (namespace.folder_of("models") / "tiny" / "model.safetensors").chmod(0o600)
    namespace.apply(deployment("locked"))
    stalled = namespace.wait_stalled("llmdeployment", "locked", 90)
    assert_told_in_time(namespace, stalled, "ModelNotFound", "/models/tiny/model.safetensors cannot be read by the pod")
    assert "chmod" in condition(stalled, "Stalled")["message"]


def test_an_unsupported_architecture_is_named_with_those_that_work(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    rename_architecture(namespace.folder_of("models") / "tiny")
    namespace.apply(deployment("alien"))
    stalled = namespace.wait_stalled("llmdeployment", "alien", 90)
    assert_told_in_time(namespace, stalled, "UnsupportedByToolchain", "MambaForCausalLM")
    assert "LlamaForCausalLM" in condition(stalled, "Stalled")["message"]


@pytest.mark.parametrize("kind", ["llmdeployment", "llmengine"])
def test_corrupt_weights_name_the_file_and_leave_nothing_on_the_volume(
    kind: str, operator: OperatorProcess, namespace: Namespace
) -> None:
    corrupt(namespace.folder_of("models") / "tiny")
    namespace.apply(deployment("broken") if kind == "llmdeployment" else engine("broken"))
    stalled = namespace.wait_stalled(kind, "broken", 90)
    assert_told_in_time(namespace, stalled, "FetchFailed", "model.safetensors")


def test_weights_that_change_between_inspection_and_build_fail_the_build_and_publish_nothing(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    """I10: the build hashes what it reads; what it does not trust never becomes visible."""
    folder = namespace.folder_of("models") / "tiny"
    namespace.apply(engine("changed"))
    namespace.wait("llmengine", "changed", lambda e: bool((e.get("status") or {}).get("model")), "inspected", 90)
    rename_weights(folder)
    stalled = namespace.wait_stalled("llmengine", "changed", 120)
    assert_told_in_time(namespace, stalled, "BuildFailed", "digest")
    key = stalled["status"]["key"]
    visible = list(namespace.folder_of(f"engine-{key[:16]}").rglob("rank????.json"))
    assert visible == [], "no record makes an engine visible"


def rename_weights(folder: Path) -> None:
    """Another tokenizer file: small files are part of the digest."""
    config = folder / "generation_config.json"
    content = config.read_text() if config.exists() else "{}"
    config.unlink(missing_ok=True)
    config.write_text(content + "\n")


def assert_told_in_time(namespace: Namespace, obj: Object, reason: str, words: str) -> None:
    told = condition(obj, "Stalled")
    assert told["reason"] == reason, told
    assert words in told["message"], told
    failed = namespace.wait_any("job", lambda job: bool(condition(job, "Failed")), "Failed", 60)
    pods = [p for p in namespace.list("pod") if p["metadata"]["labels"]["job-name"] == failed["metadata"]["name"]]
    assert len(pods) == 1, "what cannot succeed is not tried again"
    ended = pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    delay = (datetime.fromisoformat(told["lastTransitionTime"]) - datetime.fromisoformat(ended)).total_seconds()
    assert delay <= WITHIN, f"told {delay:.0f} s after the pod's end"
    assert not is_building(namespace)


def is_building(namespace: Namespace) -> bool:
    return any(j["status"].get("active") for j in namespace.list("job"))
