"""A deployment with its engine, replicas and pods, as a cluster holds them: a test changes what matters to it."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.builders import a_deployment_object, an_engine_object, merged
from trtllm_operator.api import names

Json = dict[str, Any]

KEY: Final = "41be90c2d7f3" + "0" * 52
OLD: Final = "a" * 10
NEW: Final = "b" * 10
SINCE: Final = "2026-01-02T14:03:00Z"


def a_condition(type: str, status: str, reason: str, message: str) -> Json:
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 1,
        "lastTransitionTime": SINCE,
    }


READY: Final = a_condition("Ready", "True", "AsExpected", "2 of 2 replicas are ready")

DEPLOYMENT_STATUS: Final[Json] = {
    "observedGeneration": 1,
    "conditions": [READY],
    "phase": "Ready",
    "mapping": {
        "tensorParallelSize": 8,
        "pipelineParallelSize": 1,
        "contextParallelSize": 1,
        "worldSize": 8,
        "pods": 1,
        "gpusPerPod": 8,
        "gpus": 8,
    },
    "engine": {"name": "llama-41be90c2d7f3", "key": KEY, "state": "Ready"},
    "replicas": 2,
    "readyReplicas": 2,
    "updatedReplicas": 2,
    "currentRevision": NEW,
    "targetRevision": NEW,
    "url": "http://llama.prod.svc:8000/v1",
    "display": {"ready": "2/2", "engine": "41be90c2d7f3", "parallel": "tp8"},
}
ENGINE_STATUS: Final[Json] = {
    "phase": "Ready",
    "key": KEY,
    "ranks": 8,
    "bytes": int(71.2 * 2**30),
    "buildStarted": "2026-01-02T13:00:00Z",
    "buildFinished": "2026-01-02T13:18:42Z",
}


def a_served_model(name: str = "llama", *, status: Json | None = None, spec: Json | None = None) -> Json:
    """An LLMDeployment of two replicas; `status` is merged into one that is ready."""
    obj = a_deployment_object(
        name, spec=merged({"replicas": 2}, spec or {}), status=merged(DEPLOYMENT_STATUS, status or {})
    )
    return placed(obj)


def its_engine(name: str = "llama-41be90c2d7f3", *, status: Json | None = None, ours: bool = True) -> Json:
    obj = placed(an_engine_object(name, status=merged(ENGINE_STATUS, status or {})))
    return merged(obj, {"metadata": {"labels": {names.MANAGED_BY: names.MANAGER}}}) if ours else obj


def placed(obj: Json) -> Json:
    return merged(obj, {"metadata": {"namespace": "prod"}})


def a_group(ordinal: int, *, revision: str = NEW, ready: int = 1, pods: int = 1, owner: str = "llama") -> Json:
    name = names.group(owner, ordinal)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": child(name, f"uid-of-{owner}", {names.REVISION_LABEL: revision, names.ORDINAL_LABEL: str(ordinal)}),
        "spec": {"replicas": pods},
        "status": {"observedGeneration": 1, "readyReplicas": ready},
    }


def a_server(group: str, index: int = 0, *, node: str | None = "gpu-a", ready: bool = True, **status: Any) -> Json:
    """A pod of a group; further arguments are fields of its first container's status."""
    container = {"restartCount": 0, "state": {"running": {"startedAt": SINCE}}, **status}
    labels = {names.ROLE_LABEL: "server", names.POD_INDEX_LABEL: str(index), names.DEPLOYMENT_LABEL: "llama"}
    return a_pod(f"{group}-{index}", f"uid-of-{group}", labels, node=node, ready=ready, container=container)


def a_builder(rank: int, *, node: str | None = "gpu-a", phase: str = "Running", **status: Any) -> Json:
    container = {"restartCount": 0, "state": {"running": {"startedAt": SINCE}}, **status}
    labels = {names.ROLE_LABEL: "build", names.KEY_LABEL: names.key_label(KEY)}
    pod = a_pod(f"build-{rank}", "uid-of-build", labels, node=node, ready=False, container=container)
    return merged(pod, {"metadata": {"annotations": {names.INDEX_ANNOTATION: str(rank)}}, "status": {"phase": phase}})


def a_pod(name: str, owner_uid: str, labels: Json, *, node: str | None, ready: bool, container: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": child(name, owner_uid, labels),
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": "Running" if node else "Pending",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": SINCE}],
            "containerStatuses": [container] if node else [],
        },
    }


def child(name: str, owner_uid: str, labels: Json) -> Json:
    return {
        "name": name,
        "namespace": "prod",
        "uid": f"uid-of-{name}",
        "generation": 1,
        "creationTimestamp": SINCE,
        "labels": {names.MANAGED_BY: names.MANAGER, **labels},
        "ownerReferences": [{"kind": "Any", "name": "owner", "uid": owner_uid, "controller": True}],
    }


def a_progress_line(step: str, percent: float, detail: str = "", **more: Any) -> str:
    return json.dumps({"ts": SINCE, "rank": 0, "step": step, "percent": percent, "detail": detail, **more}) + "\n"
