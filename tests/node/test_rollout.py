"""A service under load while its spec changes, well and badly: no request is lost, and what fails comes back."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.cluster.images import Images
from tests.node.load import Load
from tests.node.world import Namespace, Object, condition, deployment, is_ready, is_stalled
from tests.operator_process import OperatorProcess
from trtllm_operator.api.names import REVISION_LABEL

pytestmark = pytest.mark.node

REPLICAS: Final = 2
SMALL: Final = {"requests": {"cpu": "50m", "memory": "128Mi"}}
SMALLER: Final = {"requests": {"cpu": "50m", "memory": "120Mi"}}
"""Another revision with the same engine."""


def service(**spec: Any) -> Object:
    base: Object = {"replicas": REPLICAS, "serving": {"resources": SMALL}}
    return deployment("busy", **base | spec)


def groups(namespace: Namespace) -> dict[str, str]:
    """Revision by uid of the StatefulSets."""
    return {s["metadata"]["uid"]: s["metadata"]["labels"][REVISION_LABEL] for s in namespace.list("statefulset")}


@pytest.mark.parametrize("restarts", [False, True], ids=["undisturbed", "the operator restarts at each step"])
def test_a_rolling_update_under_load_loses_no_request(
    restarts: bool, operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply(service())
    before = namespace.wait_ready("llmdeployment", "busy")["status"]["currentRevision"]
    old = groups(namespace)
    seen = [set(old)]

    def rolled(obj: Object) -> bool:
        now = groups(namespace)
        if set(now) != seen[-1]:
            seen.append(set(now))
            if restarts:
                assert operator.stop() == 0
                operator.start()
        return is_ready(obj) and not set(now) & set(old)

    with Load(namespace, "busy") as load:
        namespace.apply(service(serving={"resources": SMALLER}))
        after = namespace.wait("llmdeployment", "busy", rolled, "rolled out", 300)
        load.goes_on()
    assert load.lost == []
    assert after["status"]["currentRevision"] != before
    assert set(groups(namespace).values()) == {after["status"]["currentRevision"]}
    assert all(len(sets) <= REPLICAS + 1 for sets in seen), "never more than wanted and the surge"


def test_a_revision_that_cannot_start_is_rolled_back_while_the_old_one_answers(
    operator: OperatorProcess, namespace: Namespace, images: Images
) -> None:
    namespace.apply(service())
    before = namespace.wait_ready("llmdeployment", "busy")["status"]["currentRevision"]
    with Load(namespace, "busy") as load:
        # A program that knows none of the server's arguments.
        bad = {"resources": SMALL, "image": images.operator}
        namespace.apply(service(serving=bad, strategy={"restartBudget": 1}))
        namespace.wait_stalled("llmdeployment", "busy")
        stalled = namespace.wait(
            "llmdeployment",
            "busy",
            lambda _: set(groups(namespace).values()) == {before},
            "served by the old one alone",
        )
        load.goes_on()
    assert load.lost == []
    told = condition(stalled, "Stalled")
    assert told["reason"] == "RolledBack"
    assert f"revision {before}" in told["message"]
    assert condition(stalled, "Available")["status"] == "True"
    assert stalled["status"]["display"]["ready"] == f"{REPLICAS}/{REPLICAS}"
    assert stalled["status"]["currentRevision"] == before

    namespace.apply(service())
    mended = namespace.wait("llmdeployment", "busy", is_ready, "Ready again", 60)
    assert mended["status"]["currentRevision"] == before


def test_a_build_that_fails_leaves_the_old_revision_answering(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(service())
    before = namespace.wait_ready("llmdeployment", "busy")
    old = groups(namespace)
    with Load(namespace, "busy") as load:
        starved = {"requests": {"memory": "32Mi"}, "limits": {"memory": "32Mi"}}
        changed = {"maxBatchSize": 3, "maxInputLen": 32, "maxSeqLen": 64}
        namespace.apply(service(engine={"toolchain": "torch", "resources": starved}, buildConfig=changed))
        stalled = namespace.wait("llmdeployment", "busy", is_stalled, "Stalled")
        load.goes_on()
    assert load.lost == []
    told = condition(stalled, "Stalled")
    assert told["reason"] == "BuildOutOfMemory"
    assert f"revision {before['status']['currentRevision']} keeps serving" in told["message"]
    assert condition(stalled, "Available")["status"] == "True"
    assert groups(namespace) == old, "the service was not touched"
