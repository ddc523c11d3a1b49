"""Kill -9 the operator right after its first write of each kind, start it again: the end is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_until
from tests.node.world import Namespace, Object, deployment
from tests.operator_process import OperatorProcess

# In the order in which they come into being.
FIRST_WRITES: Final[dict[str, Callable[[Namespace], bool]]] = {
    "the fetch Job": lambda ns: any("-fetch-" in j["metadata"]["name"] for j in ns.list("job")),
    "the first status": lambda ns: bool((ns.get("llmdeployment", "killed") or {}).get("status")),
    "the ControllerRevision": lambda ns: bool(ns.list("controllerrevision")),
    "the LLMEngine": lambda ns: bool(ns.list("llmengine")),
    "the engine's claim": lambda ns: any(c["metadata"]["name"].startswith("engine-") for c in ns.list("pvc")),
    "the build Job": lambda ns: any(j["metadata"]["name"].startswith("build-") for j in ns.list("job")),
    "the Services": lambda ns: any(s["metadata"]["name"] == "killed" for s in ns.list("service")),
    "the StatefulSet": lambda ns: bool(ns.list("statefulset")),
}

Census = dict[str, list[str]]


def census(namespace: Namespace) -> Census:
    """What there is in the end: names by kind, without what Kubernetes itself adds."""
    kinds = ("llmengine", "job", "statefulset", "service", "pvc", "controllerrevision")
    return {kind: sorted(_name(obj) for obj in namespace.list(kind) if _is_ours(obj)) for kind in kinds}


@pytest.fixture(scope="module")
def undisturbed(
    cluster: Cluster, operator_config: dict[str, object], checkpoints: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Census]:
    """The census of a run in which nothing was killed; filled by the first test of this module."""
    return {}


def test_undisturbed_run_is_the_measure(
    operator: OperatorProcess, namespace: Namespace, undisturbed: dict[str, Census]
) -> None:
    namespace.apply(deployment("killed"))
    namespace.wait_ready("llmdeployment", "killed")
    undisturbed["census"] = census(namespace)
    assert [len(names) for names in undisturbed["census"].values()] == [1, 2, 1, 2, 1, 1]


@pytest.mark.parametrize("moment", FIRST_WRITES)
def test_killed_right_after(
    moment: str, operator: OperatorProcess, namespace: Namespace, undisturbed: dict[str, Census]
) -> None:
    """I1, I2 and the end state hold across a kill at this moment."""
    namespace.apply(deployment("killed"))
    wait_until(lambda: FIRST_WRITES[moment](namespace), moment, 120, interval=0.02)
    operator.kill()
    builds = _uids(namespace, "job")
    operator.start()
    namespace.wait_ready("llmdeployment", "killed")
    assert census(namespace) == undisturbed["census"]
    assert builds <= _uids(namespace, "job"), "no Job was made a second time"
    assert namespace.complete("killed", "the engine")["usage"]["completion_tokens"] > 0


def _is_ours(obj: Object) -> bool:
    labels = obj["metadata"].get("labels") or {}
    owners = obj["metadata"].get("ownerReferences") or [{}]
    return labels.get("app.kubernetes.io/managed-by") == "trtllm-operator" and owners[0].get("kind") != "StatefulSet"


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _uids(namespace: Namespace, kind: str) -> set[str]:
    return {str(obj["metadata"]["uid"]) for obj in namespace.list(kind)}
