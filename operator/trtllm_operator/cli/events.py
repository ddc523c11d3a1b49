"""`llmd events`: what Kubernetes and the operator told about a deployment, its engine and their pods, oldest first."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from ..api.views import JobView, timestamp
from ..reconcile.store import Object
from .amounts import age
from .cluster import UserClient, namespace_of, with_cluster
from .output import Screen
from .picture import Picture, family


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One Event, however old its API."""

    at: datetime | None
    kind: str
    reason: str
    about: str
    said: str

    @classmethod
    def of(cls, event: Object) -> Self:
        series, regarding = event.get("series") or {}, event.get("regarding") or {}
        times = series.get("count") or event.get("deprecatedCount") or 1
        moments = (
            series.get("lastObservedTime"),
            event.get("deprecatedLastTimestamp"),
            event.get("eventTime"),
            event["metadata"].get("creationTimestamp"),
        )
        return cls(
            at=timestamp(next(filter(None, moments), None)),
            kind=event.get("type", ""),
            reason=event.get("reason", ""),
            about=f"{regarding.get('kind', '').lower()}/{regarding.get('name', '')}",
            said=" ".join((event.get("note") or "").split()) + (f" (x{times})" if times > 1 else ""),
        )


def events(name: str, *, namespace: str | None, kubeconfig: str | None) -> int:
    """Raises `BadInput`."""
    where, screen = namespace_of(namespace, kubeconfig), Screen(sys.stdout)
    found = with_cluster(kubeconfig, lambda client: read(client, where, name))
    if not found:
        screen.line(f"no events about {name}: Kubernetes forgets them after an hour; llmd status {name} says what is")
        return 0
    now = datetime.now(UTC)
    rows = [(age(told.at, now), told.kind, told.reason, told.about, told.said) for told in found]
    screen.table(rows, head=("AGE", "TYPE", "REASON", "ABOUT", "MESSAGE"), indent=0)
    return 0


async def read(client: UserClient, namespace: str, name: str) -> list[Told]:
    """Raises `BadInput` and `ClusterError`."""
    picture, jobs, all_events = await asyncio.gather(
        family(client, namespace, name), client.list("Job", namespace), client.list("Event", namespace)
    )
    uids = set(_family(picture, jobs.items))
    ours = (event for event in all_events.items if (event.get("regarding") or {}).get("uid") in uids)
    return sorted(map(Told.of, ours), key=lambda told: told.at or datetime.min.replace(tzinfo=UTC))


def _family(picture: Picture, jobs: Iterable[Object]) -> Iterator[str]:
    """UIDs of the deployment and of everything that is there for it."""
    parents = [picture.deployment.meta, *([picture.engine.meta] if picture.engine else [])]
    yield from (meta.uid for meta in parents)
    yield from (group.meta.uid for group in picture.groups)
    yield from (pod.meta.uid for pod in picture.pods)
    owners = {meta.uid for meta in parents}
    yield from (view.meta.uid for view in map(JobView.of, jobs) if view.meta.controller_uid in owners)
