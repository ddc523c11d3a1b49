"""Who may build now: arithmetic over the builds that run and the engines that wait for one.

First come, first served, by (waiting since, UID). An engine whose namespace is full lets those of others pass, so one
namespace never holds up another one. Both numbers are read from the cluster: a restart of the operator moves nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

NAMED_BUILDS: Final = 4
"""Builds that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A build Job that has not ended, or is decided and not in the store yet."""

    namespace: str
    job: str
    engine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """An engine that wants to build."""

    namespace: str
    uid: str
    job: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSlots:
    """The limits (0: none), who builds, and who else waits."""

    per_namespace: int = 0
    per_cluster: int = 0
    running: tuple[Build, ...] = ()
    waiting: tuple[Waiter, ...] = ()


def standing(slots: BuildSlots, me: Waiter) -> str | None:
    """Where `me` stands in the queue, as a sentence; None: it may build."""
    begun = {(build.namespace, build.job) for build in slots.running}
    if (me.namespace, me.job) in begun:
        return None
    queue = sorted(
        [me, *(other for other in slots.waiting if (other.namespace, other.job) not in begun)],
        key=lambda waiter: (waiter.since, waiter.uid),
    )
    used = Counter(namespace for namespace, _ in begun)
    for waiter in queue:
        namespace_full = 0 < slots.per_namespace <= used[waiter.namespace]
        cluster_full = 0 < slots.per_cluster <= used.total()
        if waiter is me:
            return _place(slots, queue, me, namespace_full) if namespace_full or cluster_full else None
        if not namespace_full and not cluster_full:
            used[waiter.namespace] += 1
    raise AssertionError("unreachable: `me` is in the queue")


def _place(slots: BuildSlots, queue: Sequence[Waiter], me: Waiter, namespace_full: bool) -> str:
    """Of other namespaces only numbers are told."""
    if not namespace_full:
        place = f"{_ordinal(queue.index(me) + 1)} of {len(queue)} in the cluster's queue"
        return f"{place}; {len(slots.running)} of {slots.per_cluster} builds run"
    ours = [waiter for waiter in queue if waiter.namespace == me.namespace]
    running = sorted(build.engine for build in slots.running if build.namespace == me.namespace)
    more = len(running) - NAMED_BUILDS
    names = ", ".join(running[:NAMED_BUILDS]) + (f" and {more} more" if more > 0 else "")
    place = f"{_ordinal(ours.index(me) + 1)} of {len(ours)} in the namespace's queue"
    return f"{place}; building: {names} ({len(running)} of {slots.per_namespace})"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
