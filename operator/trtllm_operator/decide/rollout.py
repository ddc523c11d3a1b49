"""Which replica groups to make and which to remove next: pure, stateless over what is observed.

The planner counts groups, never pods: a group is whole or nothing. It is told what must hold meanwhile (`Limits`) and
for how many more groups there are free GPUs (`room`), and takes the largest step that keeps both:

- groups of an old revision that are not ready go at once: they serve nobody, and what they hold is needed;
- new groups are made while there are fewer than wanted and surge together, and GPUs for them;
- old groups that are ready go as far as enough ready ones are left.

A group that is being deleted still has its ordinal, its GPUs and its place in the count. Every group that is not of
the target revision is old, whichever revision it is of: a change in the middle of a rollout turns to the newest and
leaves nothing behind. Ordinals are no identity: a new group takes the lowest free one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

AMPLE: Final = 1_000_000
"""Room where GPUs limit nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One observed replica group."""

    ordinal: int
    current: bool
    """Of the revision that is being rolled out."""
    ready: bool
    deleting: bool = False
    no_room: bool = False
    """The scheduler finds no place for it, so it holds no GPUs."""
    helps: bool = True
    """Whether a group of the target revision could use the GPUs that it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What holds during a rollout, by our own steps."""

    surge: int
    """Groups that may exist above the wanted number; those that are being deleted count."""
    available: int
    """Ready groups of any revision that no step goes below."""
    recreate: bool = False
    """No new group is made before every old one is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Ordinals to create at the target revision, and ordinals to delete."""

    create: tuple[int, ...] = ()
    delete: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.create or self.delete)


def is_complete(groups: Sequence[Group], wanted: int) -> bool:
    """Exactly the wanted number of groups, all of the current revision, all ready, nothing on its way out."""
    return len(groups) == wanted and all(g.current and g.ready and not g.deleting for g in groups)


def next_step(groups: Sequence[Group], wanted: int, limits: Limits, room: int = AMPLE) -> Step:
    """The next step towards `wanted` ready groups of the current revision; empty when there is only waiting to do."""
    live = [g for g in groups if not g.deleting]
    new, old = [g for g in live if g.current], [g for g in live if not g.current]
    surplus = _first_to_go(new)[: max(0, len(new) - wanted)]
    if limits.recreate and any(not g.current for g in groups):
        return Step(delete=_ordinals([*surplus, *old]))
    idle, serving = [g for g in old if not g.ready], [g for g in old if g.ready]
    spare = sum(g.ready for g in live) - sum(g.ready for g in surplus) - limits.available
    leaving = _first_to_go(serving)[: max(0, spare)]
    # Neither half of the step counts on the other: what is deleted is not gone yet, what is created not yet ready.
    places = min(wanted - len(new), wanted + limits.surge - len(groups), room)
    return Step(create=_free(groups, places), delete=_ordinals([*surplus, *idle, *leaving]))


def hold(groups: Sequence[Group], wanted: int) -> Step:
    """Keep `wanted` groups without rolling anything out: `current` are those of the revision that serves.

    Another revision's groups stay as long as they are ready; those that are not are replaced.
    """
    live = [g for g in groups if not g.deleting]
    idle = [g for g in live if not g.current and not g.ready]
    kept = [g for g in live if g.current or g.ready]
    surplus = _first_to_go(kept)[: max(0, len(kept) - wanted)]
    return Step(create=_free(groups, wanted - len(kept)), delete=_ordinals([*idle, *surplus]))


def _first_to_go(groups: Sequence[Group]) -> list[Group]:
    """Unhealthy first, then those whose GPUs are of use to others, then the highest ordinals."""
    return sorted(groups, key=lambda g: (g.ready, not g.helps, -g.ordinal))


def _free(groups: Sequence[Group], count: int) -> tuple[int, ...]:
    taken = {g.ordinal for g in groups}
    return tuple(n for n in range(len(taken) + max(0, count)) if n not in taken)[: max(0, count)]


def _ordinals(groups: Sequence[Group]) -> tuple[int, ...]:
    return tuple(sorted(g.ordinal for g in groups))
