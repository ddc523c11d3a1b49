"""Whether the groups of a revision still can get ready, or have used up their time or their restarts.

The time runs from the moment at which the last pod of a group got its node: waiting for GPUs, quota or a volume is
never held against a revision. Both clocks are read from the pods, so an operator that was restarted counts on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ..api.conditions import Reason
from ..api.deployment import LLMDeploymentSpec
from ..api.views import GroupView, PodView
from ..desired.statefulset import STARTUP_SECONDS
from . import runs
from .corrupt import found_corrupt

RESTART_BUDGET: Final = 3
BEYOND_STARTUP: Final = 600
"""Seconds beside the time for loading: for pulling images and mounting volumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a revision is given up; nothing but another spec, or a person, can mend it."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is known about the groups that are not ready."""

    failure: Failure | None = None
    deadline: datetime | None = None
    """When the first of them runs out of time; None: no clock runs."""


def health(
    groups: Iterable[GroupView],
    pods: Sequence[PodView],
    spec: LLMDeploymentSpec,
    now: datetime,
    rebuilt: datetime | None = None,
) -> Health:
    """Judge the groups of one revision; `pods` may hold others' too.

    `rebuilt`: when the engine's corrupt files were built anew under groups that are there; no clock runs before.
    """
    deadline: datetime | None = None
    for group in groups:
        if group.is_ready or group.meta.deleting:
            continue
        ours = pods_of(group, pods)
        if (failure := _spent(ours, spec.strategy.restart_budget or RESTART_BUDGET)) is not None:
            return Health(failure=failure)
        if (since := _started(group, ours)) is None:
            continue
        after = "its pods had a node"
        if rebuilt is not None and rebuilt > since:
            since, after = rebuilt, "its engine was built anew"
        end = since + timedelta(seconds=_seconds(spec))
        if now >= end:
            return Health(failure=_late(group, ours, spec, since, after))
        deadline = end if deadline is None else min(deadline, end)
    return Health(deadline=deadline)


def pods_of(group: GroupView, pods: Iterable[PodView]) -> list[PodView]:
    return [pod for pod in pods if pod.meta.controller_uid == group.meta.uid]


def _spent(pods: Iterable[PodView], budget: int) -> Failure | None:
    for pod in pods:
        if found_corrupt(pod):
            # Not the revision's fault: its engine says what becomes of it.
            continue
        said = runs.result(pod)
        hopeless = said is not None and said.code in runs.FINAL_CODES
        if (pod.restarts >= budget or hopeless) and not pod.ready:
            cause = (said.message if said else None) or pod.exit_message or pod.exit_reason or pod.waiting_message
            return Failure(
                reason=Reason.REPLICA_CRASHING,
                message=f"pod {pod.meta.name} ended with code {pod.exit_code} ({pod.restarts} restarts): {cause}; "
                f"see: kubectl logs -n {pod.meta.namespace} {pod.meta.name} --previous",
            )
    return None


def _started(group: GroupView, pods: Sequence[PodView]) -> datetime | None:
    """When the clock began: all pods have nodes, and none has been ready since."""
    moments = [max(filter(None, (pod.scheduled, pod.unready_since)), default=None) for pod in pods]
    known = [moment for moment in moments if moment is not None]
    placed = all(pod.scheduled is not None for pod in pods)
    return max(known) if placed and len(known) >= group.replicas else None


def _late(group: GroupView, pods: Sequence[PodView], spec: LLMDeploymentSpec, since: datetime, after: str) -> Failure:
    waits = runs.waiting(pods)
    cause = waits.message if waits else f"see: kubectl logs -n {group.meta.namespace} {group.meta.name}-0"
    return Failure(
        reason=Reason.PROGRESS_DEADLINE_EXCEEDED,
        message=f"replica {group.meta.name} was not ready {_seconds(spec)} s after {after}, "
        f"at {since:%H:%MZ}: {cause}; strategy.progressDeadlineSeconds gives it longer",
    )


def _seconds(spec: LLMDeploymentSpec) -> int:
    startup = spec.serving.startup_seconds or STARTUP_SECONDS
    return spec.strategy.progress_deadline_seconds or startup + BEYOND_STARTUP
