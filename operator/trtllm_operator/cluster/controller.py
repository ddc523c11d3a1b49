"""One look at one object: snapshot -> decide -> apply -> status. Everything that decides is elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from ..api.conditions import Condition, ConditionType, find_condition
from ..api.deployment import LLMDeployment
from ..api.engine import LLMEngine
from ..decide.deployment import decide_deployment
from ..decide.engine import decide_engine
from ..decide.plan import Course, Plan
from ..decide.status import deployment_status, engine_status
from ..reconcile.resync import Enqueue
from ..reconcile.store import Key, Object, Store
from ..resolve.defaults import Defaults
from .client import Client
from .events import Events
from .executor import Executor, Refusal
from .snapshots import concerned, deployment_snapshot, engine_snapshot

RETRY_REFUSED: Final = 5.0
"""Seconds until a refused action is tried again: what stands against it (a foreign object, a quota) is not watched."""


class Controller:
    """Reconciles LLMDeployments and LLMEngines."""

    def __init__(
        self,
        *,
        store: Store,
        client: Client,
        events: Events,
        enqueue: Enqueue,
        defaults: Defaults,
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._client = client
        self._executor = Executor(client, store, enqueue)
        self._events = events
        self._defaults = defaults
        self._now = now

    def owners(self, obj: Object) -> list[Key]:
        """Which keys to look at when this object changed."""
        return sorted(concerned(self._store, obj))

    async def reconcile(self, key: Key) -> float | None:
        """Bring one object a step closer; returns after how many seconds to look again without an event."""
        obj = self._store.get(key)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            # No finalizer: what we made goes by owner references, engines and claims by retention.
            return None
        now = self._now()
        if key.kind == LLMDeployment.KIND:
            deployment = deployment_snapshot(self._store, obj, self._defaults)
            planned = decide_deployment(deployment, now)
            refusal = await self._executor.execute(planned.actions)
            planned = planned if refusal is None else replace(planned, verdict=refusal.verdict)
            await self._report(obj, deployment_status(deployment, planned, now), planned)
            return _next_look(planned, refusal, now)
        engine = engine_snapshot(self._store, obj, self._defaults)
        plan = decide_engine(engine, now)
        refusal = await self._executor.execute(plan.actions)
        plan = plan if refusal is None else replace(plan, verdict=refusal.verdict)
        await self._report(obj, engine_status(engine, plan, now), plan)
        return _next_look(plan, refusal, now)

    async def _report(self, obj: Object, status: dict[str, Any], plan: Plan) -> None:
        """Write the status if it differs, and an Event if the reason does."""
        if obj.get("status") == status:
            return
        before = find_condition(_conditions(obj), ConditionType.READY)
        self._executor.learn(await self._client.apply_status(obj, status))
        if before is None or before.reason != plan.verdict.reason:
            kind = "Warning" if plan.verdict.course is Course.STALLED else "Normal"
            await self._events.emit(obj, kind, plan.verdict.reason, plan.verdict.message)


def _conditions(obj: Object) -> tuple[Condition, ...]:
    parse = LLMDeployment.of if obj["kind"] == LLMDeployment.KIND else LLMEngine.of
    return parse(obj).status.conditions


def _next_look(plan: Plan, refusal: Refusal | None, now: datetime) -> float | None:
    if refusal is not None:
        return RETRY_REFUSED
    return None if plan.look_again is None else max(0.0, (plan.look_again - now).total_seconds())
