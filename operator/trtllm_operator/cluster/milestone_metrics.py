"""Counts what comes to an end: builds, rollouts, rollbacks. Each once in the life of the process.

A milestone is read from statuses, as they are stored and as they were just written. What stood there when the process
first saw an object was reached before its time, and is not counted. A write whose answer is lost is met at the next
look, so nothing is missed; the same status met again says nothing new.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

from ..api.deployment import LLMDeployment
from ..api.engine import EnginePhase
from ..api.views import timestamp
from ..reconcile.store import Object
from .metrics import Metrics

REMEMBERED: Final = 50_000
"""Subjects; the one that was met least lately is forgotten first, and begins anew as one that was never seen."""


class Milestones:
    """Tells the metrics what statuses say for the first time."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._reached: OrderedDict[Hashable, str | None] = OrderedDict()

    def meet(self, obj: Object, status: dict[str, Any]) -> None:
        """A look at `obj` found or wrote this status."""
        if obj["kind"] == LLMDeployment.KIND:
            self._deployment(obj["metadata"]["uid"], status)
        else:
            self._engine(obj["metadata"]["namespace"], status)

    def _deployment(self, uid: str, status: dict[str, Any]) -> None:
        if self._is_news(("rollout", uid), _rolled_out(status)):
            self._metrics.count_rollout()
        failed = status.get("failedRevision") or {}
        if self._is_news(("rollback", uid), failed.get("at")):
            self._metrics.count_rollback(failed["reason"])

    def _engine(self, namespace: str, status: dict[str, Any]) -> None:
        """The key says which build: engines with equal keys show the same one."""
        key, phase = status.get("key"), status.get("phase")
        if key is None or status.get("reference"):
            return
        ended = phase in (EnginePhase.READY, EnginePhase.FAILED)
        began, end = timestamp(status.get("buildStarted")), timestamp(status.get("buildFinished") if ended else None)
        if self._is_news(("build", namespace, key), status["buildFinished"] if end else None) and began and end:
            outcome = "succeeded" if phase == EnginePhase.READY else "failed"
            self._metrics.observe_build(status.get("toolchain") or "", outcome, (end - began).total_seconds())

    def _is_news(self, subject: Hashable, reached: str | None) -> bool:
        """Whether the subject, which was seen before, has come to something new. None takes nothing back."""
        known = self._reached.setdefault(subject, reached)
        self._reached.move_to_end(subject)
        if len(self._reached) > REMEMBERED:
            self._reached.popitem(last=False)
        if reached is None or reached == known:
            return False
        self._reached[subject] = reached
        return True


def _rolled_out(status: dict[str, Any]) -> str | None:
    """The revision that all replicas serve; None while one is on its way."""
    current = status.get("currentRevision")
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
    return current if ready and current == status.get("targetRevision") else None
