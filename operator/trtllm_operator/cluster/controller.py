"""One look at one object: snapshot -> decide -> apply -> status. Everything that decides is elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from ..api.conditions import Condition, ConditionType, find_condition
from ..api.deployment import LLMDeployment
from ..api.engine import LLMEngine
from ..api.names import ROLE_LABEL
from ..api.placement import NodeView
from ..decide.deployment import decide_deployment
from ..decide.engine import decide_engine
from ..decide.plan import Apply, Course, Create, Delete, Plan
from ..decide.retention import USERS_SEEN, decide_claim
from ..decide.status import deployment_status, engine_status
from ..reconcile.resync import Enqueue
from ..reconcile.store import Key, Object, Store
from ..resolve.defaults import Defaults
from .client import Client
from .events import Events
from .executor import Executor, Refusal
from .milestone_metrics import Milestones
from .snapshots import claim_snapshot, concerned, deployment_snapshot, engine_snapshot, gpus, mounts

RETRY_REFUSED: Final = 5.0
"""Seconds until a refused action is tried again: what stands against it (a foreign object, a quota) is not watched."""

COUNTED_FOR: Final = timedelta(seconds=2)
"""How long a list of everybody's pods is good for: many may ask for it at once."""


class Controller:
    """Reconciles LLMDeployments and LLMEngines, and the claims that engines leave behind."""

    def __init__(
        self,
        *,
        store: Store,
        client: Client,
        events: Events,
        milestones: Milestones,
        enqueue: Enqueue,
        defaults: Defaults,
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._client = client
        self._executor = Executor(client, store, enqueue)
        self._events = events
        self._milestones = milestones
        self._defaults = defaults
        self._now = now
        self._promised: dict[Key, list[Object]] = {}
        """StatefulSets that are decided and not in the store yet, by whose they are."""
        self._starting: dict[Key, list[Object]] = {}
        """Build Jobs that are decided and not in the store yet, by whose they are."""
        self._placed: tuple[datetime, list[Object]] | None = None
        self._nodes: dict[str, NodeView] = {}

    def owners(self, obj: Object) -> list[Key]:
        """Which keys to look at when this object changed."""
        if obj["kind"] == "Node" and not self._is_news(NodeView.of(obj)):
            return []
        return sorted(concerned(self._store, obj))

    def _is_news(self, node: NodeView) -> bool:
        """Every node reports every few minutes, and nearly always the same."""
        before, self._nodes[node.name] = self._nodes.get(node.name), node
        return before != node

    async def reconcile(self, key: Key) -> float | None:
        """Bring one object a step closer; returns after how many seconds to look again without an event."""
        obj = self._store.get(key)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            # No finalizer: what we made goes by owner references, engines and claims by retention.
            return None
        now = self._now()
        if key.kind == LLMDeployment.KIND:
            return await self._deploy(key, obj, now)
        if key.kind == "PersistentVolumeClaim":
            return await self._keep_claim(key, obj, now)
        # Until the promise nothing else runs: two engines never get the same slot.
        others = [job for owner, jobs in self._starting.items() if owner != key for job in jobs]
        engine = engine_snapshot(self._store, obj, self._defaults, others)
        plan = decide_engine(engine, now)
        self._starting[key] = _builds_started_by(plan)
        try:
            refusal = await self._executor.execute(plan.actions)
        finally:
            del self._starting[key]
        await self._tell_losses(obj, plan)
        plan = plan if refusal is None else replace(plan, verdict=refusal.verdict)
        await self._report(obj, engine_status(engine, plan, now), plan)
        return _next_look(plan.look_again, refusal, now)

    async def _deploy(self, key: Key, obj: Object, now: datetime) -> float | None:
        snapshot = deployment_snapshot(self._store, obj, self._defaults)
        plan = decide_deployment(snapshot, now)
        if plan.asks_gpus:
            placed = await self._placed_pods(now)
            latest = self._store.get(key)
            if latest is None or "deletionTimestamp" in latest["metadata"]:
                return None
            # From here to the promise nothing else runs: two deployments never count the same GPU.
            obj, snapshot = latest, deployment_snapshot(self._store, latest, self._defaults)
            others = [made for owner, sets in self._promised.items() if owner != key for made in sets]
            counted = gpus(self._store, snapshot.deployment, placed, others)
            snapshot = replace(snapshot, gpus=counted)
            plan = decide_deployment(snapshot, now)
        self._promised[key] = _groups_made_by(plan)
        try:
            refusal = await self._executor.execute(plan.actions)
        finally:
            # What was made is in the store by now, and counts from there.
            del self._promised[key]
        await self._tell_losses(obj, plan)
        plan = plan if refusal is None else replace(plan, verdict=refusal.verdict)
        await self._report(obj, deployment_status(snapshot, plan, now), plan)
        return _next_look(plan.look_again, refusal, now)

    async def _keep_claim(self, key: Key, obj: Object, now: datetime) -> float | None:
        plan = decide_claim(claim_snapshot(self._store, obj, self._defaults), now)
        if any(isinstance(action, Delete) for action in plan.actions):
            pods = (await self._client.list("PlacedPod", key.namespace)).items
            # While it was listed an engine may have come.
            plan = decide_claim(claim_snapshot(self._store, obj, self._defaults), now)
            if any(mounts(pod, key.name) for pod in pods):
                # Somebody else's: a claim that is in use would hang in Terminating until they end.
                return USERS_SEEN.total_seconds()
        refusal = await self._executor.execute(plan.actions)
        return _next_look(plan.look_again, refusal, now)

    async def _placed_pods(self, now: datetime) -> list[Object]:
        """Everybody's; of ours the store knows better."""
        if self._placed is None or now - self._placed[0] > COUNTED_FOR:
            self._placed = now, (await self._client.list("PlacedPod")).items
        return self._placed[1]

    async def _tell_losses(self, obj: Object, plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, Delete) and action.force:
                await self._events.emit(obj, "Warning", "NodeLost", f"{action.kind} {action.name}: {action.reason}")

    async def _report(self, obj: Object, status: dict[str, Any], plan: Plan) -> None:
        """Write the status if it differs, and an Event if the reason does."""
        self._milestones.meet(obj, obj.get("status") or {})
        if obj.get("status") == status:
            return
        before = find_condition(_conditions(obj), ConditionType.READY)
        self._executor.learn(await self._client.apply_status(obj, status))
        self._milestones.meet(obj, status)
        if before is None or before.reason != plan.verdict.reason:
            kind = "Warning" if plan.verdict.course is Course.STALLED else "Normal"
            await self._events.emit(obj, kind, plan.verdict.reason, plan.verdict.message)


def _groups_made_by(plan: Plan) -> list[Object]:
    made = (action.manifest for action in plan.actions if isinstance(action, Apply))
    return [dict(manifest) for manifest in made if manifest["kind"] == "StatefulSet"]


def _builds_started_by(plan: Plan) -> list[Object]:
    made = (dict(action.manifest) for action in plan.actions if isinstance(action, Create))
    return [manifest for manifest in made if manifest["metadata"]["labels"].get(ROLE_LABEL) == "build"]


def _conditions(obj: Object) -> tuple[Condition, ...]:
    parse = LLMDeployment.of if obj["kind"] == LLMDeployment.KIND else LLMEngine.of
    return parse(obj).status.conditions


def _next_look(look_again: datetime | None, refusal: Refusal | None, now: datetime) -> float | None:
    if refusal is not None:
        return RETRY_REFUSED
    return None if look_again is None else max(0.0, (look_again - now).total_seconds())
