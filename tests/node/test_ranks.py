"""Models that are split over ranks: each rank is built by a pod of its own, and together they answer as one does."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.models import SMOLLM2
from tests.node.world import Namespace, deployment
from tests.operator_process import OperatorProcess

pytestmark = [pytest.mark.node, pytest.mark.model]

ON_CPU: Final = {"device": "cpu", "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}}}
PROMPT: Final = "the engine is"

SPLITS: Final[dict[str, dict[str, int]]] = {
    "two tensor ranks": {"tensorParallelSize": 2},
    "two stages": {"pipelineParallelSize": 2},
}


def answer(namespace: Namespace, name: str, **spec: Any) -> str:
    """The greedy answer of a deployment of the tiny model, once it is ready."""
    namespace.apply(deployment(name, serving=ON_CPU, **spec))
    namespace.wait_ready("llmdeployment", name)
    said = namespace.complete(name, PROMPT)
    assert said["usage"]["completion_tokens"] > 0
    return str(said["choices"][0]["text"])


def test_ranks_answer_as_one_does(operator: OperatorProcess, namespace: Namespace) -> None:
    alone = answer(namespace, "alone")
    for number, (what, split) in enumerate(SPLITS.items()):
        assert answer(namespace, f"split-{number}", **split) == alone, what
        (status,) = [d["status"] for d in namespace.list("llmdeployment") if d["metadata"]["name"] == f"split-{number}"]
        assert status["mapping"]["worldSize"] == 2
    built = [e["status"]["ranks"] for e in namespace.list("llmengine")]
    assert sorted(built) == [1, 2, 2], "one engine for each mapping"


def test_the_real_model_answers_on_three_tensor_ranks(operator: OperatorProcess, namespace: Namespace) -> None:
    """It has nine heads, so three ranks are the fewest that share it."""
    spec = {"tensorParallelSize": 3, "buildConfig": {"maxBatchSize": 2, "maxInputLen": 128, "maxSeqLen": 256}}
    namespace.apply(deployment("smollm2", f"/models/{SMOLLM2}", serving=ON_CPU, **spec))
    namespace.wait_ready("llmdeployment", "smollm2", seconds=300)
    said = namespace.complete("smollm2", "The capital of France is")
    assert "Paris" in said["choices"][0]["text"]
