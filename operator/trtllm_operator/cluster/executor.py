"""Carries out a plan's actions, in order; idempotent, so a crash between any two of them is harmless."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..api import names
from ..api.conditions import Reason
from ..api.views import Meta
from ..decide.plan import Action, Apply, Course, Create, Delete, Verdict
from ..desired.diff import first_difference
from ..reconcile.resync import Enqueue
from ..reconcile.store import Key, Object, Store, key_of, uid_of, version_of
from .client import Client
from .errors import ApiError, Forbidden, Unreachable
from .kinds import KINDS


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server, or an owner that is not us, stands against an action; the rest of the plan waits."""

    verdict: Verdict


class Executor:
    """Writes to the cluster, and only where something differs."""

    def __init__(self, client: Client, store: Store, enqueue: Enqueue) -> None:
        self._client = client
        self._store = store
        self._enqueue = enqueue

    def learn(self, obj: Object) -> None:
        """Keep what the API server answered, and ask for a look at everyone whom it concerns.

        The watch will show the same version once more, and by then it is no news: whoever is not asked here
        would not be asked at all.
        """
        if self._store.put(obj):
            self._enqueue(obj)

    async def execute(self, actions: Iterable[Action]) -> Refusal | None:
        """Stops at the first refusal, because later actions rest on earlier ones. `ClusterError`: try again later."""
        for action in actions:
            refusal = await self._one(action)
            if refusal is not None:
                return refusal
        return None

    async def _one(self, action: Action) -> Refusal | None:
        try:
            match action:
                case Apply():
                    return await self._apply(dict(action.manifest))
                case Create():
                    return await self._create(dict(action.manifest))
                case Delete():
                    return await self._delete(action)
        except Forbidden as error:
            if any(cause.reason == "NamespaceTerminating" for cause in error.causes):
                return _refusal(Course.MOVING, Reason.DELETING, "the namespace is being deleted")
            if "exceeded quota" in error.message:
                return _refusal(Course.MOVING, Reason.WAITING_FOR_QUOTA, error.message)
            hint = "grant the right, or change the policy that is named; it is tried again every few seconds"
            return _refusal(Course.STALLED, Reason.FORBIDDEN, f"the API server forbids it: {error.message}; {hint}")
        except ApiError as error:
            if error.status == 422:
                return _refusal(Course.STALLED, Reason.INVALID_SPEC, f"the API server refuses a child: {error.message}")
            raise

    async def _apply(self, manifest: dict[str, Any]) -> Refusal | None:
        live = await self._live(manifest)
        if live is not None:
            if (foreign := _foreign(manifest, live)) is not None:
                return foreign
            self.learn(live)
            if Meta.of(live).deleting or first_difference(manifest, live) is None:
                return None
        self.learn(await self._client.apply(manifest))
        return None

    async def _create(self, manifest: dict[str, Any]) -> Refusal | None:
        live = await self._live(manifest) or await self._client.create(manifest)
        if live is None:
            raise Unreachable(f"{key_of(manifest)} came into being between two looks")
        if (foreign := _foreign(manifest, live)) is not None:
            return foreign
        self.learn(live)
        return None

    async def _live(self, manifest: dict[str, Any]) -> Object | None:
        """What has the manifest's name now. Only an object of the same owner is believed without asking.

        Kinds that are not watched leave the store only at the next resync, so one of a deleted owner may be gone.
        """
        key = key_of(manifest)
        known = self._store.get(key)
        if known is not None and Meta.of(known).controller_uid == Meta.of(manifest).controller_uid:
            return known
        fresh = await self._client.get(*key)
        if fresh is None:
            self._forget(key)
        return fresh

    async def _delete(self, action: Delete) -> Refusal | None:
        key = Key(action.kind, action.namespace, action.name)
        fresh = await self._client.get(*key)
        if fresh is None:
            self._forget(key)
            return None
        meta = Meta.of(fresh)
        ours = meta.controller_uid == action.owner_uid if action.owner_uid else meta.controller_uid is None
        if meta.uid != action.uid or not ours or (meta.deleting and not action.force):
            self.learn(fresh)
            return None
        await self._client.delete(
            action.kind,
            action.namespace,
            action.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            propagation=action.propagation,
            force=action.force,
        )
        if not KINDS[action.kind].watched:
            self._forget(key)
        return None

    def _forget(self, key: Key) -> None:
        """Of what is gone: a kind that is not watched would stay in the store until the next resync."""
        known = self._store.get(key)
        if known is not None:
            self._store.delete(key, uid_of(known), version_of(known))


def _foreign(manifest: dict[str, Any], live: Object) -> Refusal | None:
    """I9: what carries our name but not our mark is somebody else's, and is never touched.

    Our mark is the controller reference; on what has no owner by design (claims, engines), our label. A build
    Job is about its content: one that a sibling engine owns is the same Job.
    """
    wanted, found = Meta.of(manifest), Meta.of(live)
    marked = found.labels.get(names.MANAGED_BY) == names.MANAGER
    if wanted.controller_uid == found.controller_uid:
        return None if marked or wanted.controller_uid else _conflict(live)
    if not marked or found.controller_uid is None:
        return _conflict(live)
    if live["kind"] == "Job" and names.KEY_LABEL in found.labels:
        return None
    return _refusal(
        Course.MOVING,
        Reason.DELETING,
        f"waiting for {live['kind']} {found.name} of a deleted object of the same name to go",
    )


def _conflict(live: Object) -> Refusal:
    return _refusal(
        Course.STALLED,
        Reason.NAME_CONFLICT,
        f"{live['kind']} {live['metadata']['name']} exists and is not ours; rename it or this object",
    )


def _refusal(course: Course, reason: Reason, message: str) -> Refusal:
    return Refusal(Verdict(course=course, reason=reason, message=message))
