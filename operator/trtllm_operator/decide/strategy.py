"""What a strategy promises for a number of replicas and the GPUs that there are: numbers for the planner.

`RollingUpdate` and `Recreate` are the user's word and hold as written. `Auto` fits itself to the cluster: it surges as
far as there are GPUs for it, and replaces one by one where there are none, because waiting would be for the GPUs that
the old groups hold. It is computed anew from what is observed at every look: making and removing groups moves GPUs
between "held" and "free", and leaves their sum as it is, so the answer does not change in the middle of a rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..api.deployment import Strategy, StrategyType
from .rollout import Group, Limits

SURGE: Final = 1
UNAVAILABLE: Final[dict[StrategyType, int]] = {StrategyType.AUTO: 1, StrategyType.ROLLING_UPDATE: 0}
"""Where the user wrote nothing. Of Auto it is what one by one means."""


def limits_of(
    strategy: Strategy, groups: Sequence[Group], wanted: int, capacity: int | None, unheld: int | None = None
) -> Limits:
    """`capacity`: how many groups there are GPUs for, those that hold theirs included; None: it is not known.

    `unheld`: the same without regard to who else waits for them; by default there is nobody. A surge leaves others
    what they were promised. But what an old group made room with is not lost to a neighbour before he has it, or one
    who waits would cost a rollout every replica.
    """
    kind = strategy.type or StrategyType.AUTO
    if kind is StrategyType.RECREATE:
        return Limits(surge=0, available=0, recreate=True)
    surge, unavailable = numbers(strategy, wanted)
    if kind is StrategyType.ROLLING_UPDATE:
        return Limits(surge=surge, available=max(0, wanted - unavailable))
    places = _places(groups, wanted, capacity)
    surge = min(surge, max(0, places - wanted))
    most = places if unheld is None else max(places, _places(groups, wanted, unheld))
    available = min(wanted, most) - (0 if surge else max(1, unavailable))
    ready = sum(g.ready and not g.deleting for g in groups)
    helping = sum(g.ready and not g.deleting and not g.current and g.helps for g in groups)
    # Nothing is gained by removing what serves on GPUs that the target cannot use.
    return Limits(surge=surge, available=max(0, available, ready - max(ready - wanted, helping)))


def numbers(strategy: Strategy, wanted: int) -> tuple[int, int]:
    """maxSurge and maxUnavailable in groups: a percentage of the surge is rounded up, of the other down, as in
    Deployments; where both come to nothing, one group may be unavailable."""
    kind = strategy.type or StrategyType.AUTO
    surge = SURGE if strategy.max_surge is None else _of(strategy.max_surge, wanted, up=True)
    written = strategy.max_unavailable
    unavailable = UNAVAILABLE.get(kind, 0) if written is None else _of(written, wanted, up=False)
    return surge, unavailable or (0 if surge else 1)


def _places(groups: Sequence[Group], wanted: int, capacity: int | None) -> int:
    """Groups that have a place or could have one."""
    holding = sum(not g.no_room for g in groups)
    places = max(holding, wanted) if capacity is None else capacity
    if holding == len(groups):
        return places
    # The scheduler sees more than GPUs. What it finds no place for is one group above what there is room for,
    # until an old group has gone for its sake: then it is one of the wanted, and is about to be placed.
    return min(places, max(holding, min(wanted, len(groups))))


def _of(amount: int | str, wanted: int, *, up: bool) -> int:
    if isinstance(amount, int):
        return amount
    hundredths = int(amount.removesuffix("%")) * wanted
    return -(-hundredths // 100) if up else hundredths // 100
