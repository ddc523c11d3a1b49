"""Which replica groups to make and which to remove next: pure, stateless over what is observed.

One step at a time, and only steps that keep what serves. A group is whole or nothing, so the planner
counts groups, never pods. With `wanted` groups asked for:

- groups of an old revision that are not ready go first: they serve nobody;
- a new group is started beside the old ones (surge 1) and an old one is removed when it is spare;
- where the surge group finds no free GPU, waiting would be for the GPUs that the old groups hold, so
  one old group makes room at a time instead.

Ordinals are no identity: a new group takes the lowest free one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SURGE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One observed replica group. `deleting` groups still hold their ordinal and their GPUs."""

    ordinal: int
    current: bool
    """Of the revision that is being rolled out."""
    ready: bool
    deleting: bool = False
    no_room: bool = False
    """The scheduler finds no node with enough free GPUs for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Ordinals to create at the new revision, ordinals to delete, and whether old groups make room one by one."""

    create: tuple[int, ...] = ()
    delete: tuple[int, ...] = ()
    one_by_one: bool = False


def is_complete(groups: Sequence[Group], wanted: int) -> bool:
    """Exactly the wanted number of groups, all of the current revision, all ready, nothing on its way out."""
    return len(groups) == wanted and all(g.current and g.ready and not g.deleting for g in groups)


def next_step(groups: Sequence[Group], wanted: int) -> Step:
    """The next step towards `wanted` ready groups of the current revision; empty when there is only waiting to do."""
    live = [g for g in groups if not g.deleting]
    new, old = [g for g in live if g.current], [g for g in live if not g.current]
    surplus = _first_to_go(new)[: max(0, len(new) - wanted)]
    if not old or not wanted:
        return Step(create=_free(groups, wanted - len(new)), delete=_ordinals([*surplus, *old]))
    idle = [g for g in old if not g.ready]
    serving = [g for g in old if g.ready]
    spare = max(0, sum(g.ready for g in live) - wanted)
    leaving = _first_to_go(serving)[: min(spare, len(serving))]
    room = wanted + SURGE - (len(live) - len(idle))
    create = _free(groups, min(room, wanted - len(new)))
    if leaving or create or idle or surplus:
        return Step(create=create, delete=_ordinals([*idle, *surplus, *leaving]))
    # The old groups hold what the new one waits for; one that is already leaving will make that room.
    if any(g.no_room for g in new) and len(live) == len(groups):
        return Step(delete=_ordinals(_first_to_go(serving)[:1]), one_by_one=True)
    return Step(one_by_one=any(g.no_room for g in new))


def _first_to_go(groups: Sequence[Group]) -> list[Group]:
    """Unhealthy first, then the highest ordinals."""
    return sorted(groups, key=lambda g: (g.ready, -g.ordinal))


def _free(groups: Sequence[Group], count: int) -> tuple[int, ...]:
    taken = {g.ordinal for g in groups}
    return tuple(n for n in range(len(taken) + max(0, count)) if n not in taken)[: max(0, count)]


def _ordinals(groups: Sequence[Group]) -> tuple[int, ...]:
    return tuple(sorted(g.ordinal for g in groups))
