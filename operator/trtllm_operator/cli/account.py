"""What `llmd status` shows, for machines: names and numbers that stay, null for what is not known."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..api.conditions import ConditionType, find_condition
from ..api.deployment import LLMDeployment, Phase
from ..api.views import GroupView, PodView
from .picture import Picture
from .portrait import blocking
from .standing import Standing, of_server, of_worker

Json = dict[str, Any]


def brief(deployment: LLMDeployment) -> Json:
    """From the object alone."""
    meta, status, spec = deployment.meta, deployment.status, deployment.spec
    ready, why = find_condition(status.conditions, ConditionType.READY), blocking(deployment)
    is_current = status.observed_generation == meta.generation
    return {
        "name": meta.name,
        "namespace": meta.namespace,
        "generation": meta.generation,
        "observedGeneration": status.observed_generation,
        "ready": ready is not None and ready.status == "True" and is_current,
        "phase": str(status.phase or Phase.PENDING),
        "blocked": None
        if why is None
        else {
            "reason": why.reason,
            "message": why.message,
            "since": moment(why.last_transition_time),
            "needsPerson": why.type == ConditionType.STALLED,
        },
        "problems": [problem.to_json() for problem in status.problems],
        "model": spec.model if spec else None,
        "replicas": {
            "wanted": spec.replicas if spec else None,
            "existing": status.replicas,
            "ready": status.ready_replicas,
            "updated": status.updated_replicas,
        },
        "revisions": {
            "current": status.current_revision,
            "target": status.target_revision,
            "failed": status.failed_revision.revision if status.failed_revision else None,
        },
        "engine": None
        if status.engine is None
        else {
            "name": status.engine.name,
            "key": status.engine.key,
            "state": status.engine.state,
            "percent": status.engine.percent,
            "etaSeconds": status.engine.eta_seconds,
        },
        "mapping": status.mapping.to_json() if status.mapping else None,
        "adjustments": [adjustment.to_json() for adjustment in status.adjustments],
        "url": status.url,
        "created": moment(meta.created),
    }


def account(picture: Picture) -> Json:
    """With all that belongs to it."""
    return {
        **brief(picture.deployment),
        "groups": [_group(picture, group) for group in picture.groups],
        "fetching": [_pod(pod, of_worker(picture, pod, "fetching")) for pod in picture.fetching()],
        "building": [_pod(pod, of_worker(picture, pod, "working")) for pod in picture.building()],
    }


def moment(when: datetime | None) -> str | None:
    """RFC 3339."""
    return None if when is None else f"{when:%Y-%m-%dT%H:%M:%SZ}"


def _group(picture: Picture, group: GroupView) -> Json:
    return {
        "name": group.meta.name,
        "ordinal": group.ordinal,
        "revision": group.revision,
        "ready": group.is_ready,
        "going": group.meta.deleting,
        "pods": [_pod(pod, of_server(picture, pod)) for pod in picture.pods_of(group)],
    }


def _pod(pod: PodView, standing: Standing) -> Json:
    """`rank` is the pod's place: of a group of several pods, or of a build."""
    return {
        "name": pod.meta.name,
        "rank": pod.index,
        "state": str(standing.state),
        "text": standing.text,
        "percent": standing.percent,
        "detail": standing.detail or None,
        "node": pod.node,
        "restarts": pod.restarts,
        "created": moment(pod.meta.created),
    }
