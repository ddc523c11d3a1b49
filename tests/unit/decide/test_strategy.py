"""What a strategy promises: the user's numbers as written, and Auto by the GPUs that there are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from trtllm_operator.api.deployment import Strategy, StrategyType
from trtllm_operator.decide.rollout import AMPLE, Group, Limits, Step, is_complete, next_step
from trtllm_operator.decide.strategy import limits_of, numbers

AUTO = Strategy()


def rolling(**fields: Any) -> Strategy:
    return Strategy(type=StrategyType.ROLLING_UPDATE, **fields)


def old(count: int, **changes: Any) -> list[Group]:
    return [replace(Group(ordinal=n, current=False, ready=True), **changes) for n in range(count)]


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "expected"),
    [
        (None, None, 4, (1, 0)),
        (2, 1, 4, (2, 1)),
        ("25%", "25%", 10, (3, 2)),
        ("0%", "10%", 4, (0, 1)),
        (0, "10%", 4, (0, 1)),
        ("100%", 0, 3, (3, 0)),
    ],
)
def test_percentages_are_rounded_as_in_deployments(
    surge: Any, unavailable: Any, replicas: int, expected: tuple[int, int]
) -> None:
    assert numbers(rolling(max_surge=surge, max_unavailable=unavailable), replicas) == expected


def test_rolling_update_keeps_to_the_users_numbers_whatever_is_free() -> None:
    for capacity in (None, 0, 2, AMPLE):
        assert limits_of(rolling(max_surge=2), old(3), 3, capacity) == Limits(surge=2, available=3)
        assert limits_of(rolling(max_unavailable=2), old(3), 3, capacity) == Limits(surge=1, available=1)


def test_recreate_promises_nothing_and_needs_nothing() -> None:
    assert limits_of(Strategy(type=StrategyType.RECREATE), old(2), 2, 2) == Limits(surge=0, available=0, recreate=True)


def test_auto_surges_where_a_gpu_is_free_and_goes_one_by_one_where_none_is() -> None:
    assert limits_of(AUTO, old(2), 2, 3) == Limits(surge=1, available=2)
    assert limits_of(AUTO, old(2), 2, 2) == Limits(surge=0, available=1)
    assert limits_of(AUTO, old(2), 2, None) == Limits(surge=0, available=1), "nobody knows what is free"


def test_auto_does_not_change_its_mind_when_its_own_surge_has_taken_the_free_gpu() -> None:
    loading = Group(ordinal=2, current=True, ready=False)
    assert limits_of(AUTO, [*old(2), loading], 2, 3) == Limits(surge=1, available=2)


def test_auto_surges_no_further_than_the_user_says_and_the_gpus_last() -> None:
    assert limits_of(Strategy(max_surge=3), old(4), 4, 6).surge == 2
    assert limits_of(Strategy(max_surge=3), old(4), 4, AMPLE).surge == 3
    assert limits_of(Strategy(max_surge=0, max_unavailable=1), old(4), 4, AMPLE) == Limits(surge=0, available=3)


def test_what_the_scheduler_finds_no_place_for_outweighs_what_was_counted() -> None:
    """GPUs may be free on a node that has no memory left: waiting would be for what the old groups hold."""
    stuck = Group(ordinal=2, current=True, ready=False, no_room=True)
    assert limits_of(AUTO, [*old(2), stuck], 2, 3) == Limits(surge=0, available=1)


def test_a_group_that_made_room_is_not_followed_by_another_before_its_place_is_taken() -> None:
    """The scheduler takes moments to see that there is room now."""
    stuck = Group(ordinal=2, current=True, ready=False, no_room=True)
    limits = limits_of(AUTO, [*old(1), stuck], 2, 3)
    assert next_step([*old(1), stuck], 2, limits, 3 - 2).delete == ()


def test_what_serves_on_gpus_that_the_target_cannot_use_is_not_removed_for_it() -> None:
    elsewhere = old(2, helps=False)
    assert limits_of(AUTO, elsewhere, 2, 2) == Limits(surge=0, available=2)
    mixed = [*old(1, helps=False), Group(ordinal=1, current=False, ready=True)]
    limits = limits_of(AUTO, mixed, 2, 2)
    assert next_step(mixed, 2, limits, 0) == Step(delete=(1,)), "the one whose GPUs can be used"


def test_more_replicas_than_gpus_do_not_stop_auto() -> None:
    """Scaled up and changed at once on a full cluster: the old groups still make room, one at a time."""
    waiting = [Group(ordinal=n, current=True, ready=False, no_room=True) for n in (2, 3)]
    assert limits_of(AUTO, [*old(2), *waiting], 4, 2) == Limits(surge=0, available=1)


# --- Auto over all small states ---------------------------------------------------------------------------------------


def trace(groups: list[Group], wanted: int, capacity: int) -> Iterator[tuple[list[Group], Step]]:
    """Until nothing more can happen; new groups get ready, and what was deleted is gone, between two steps."""
    for _ in range(40):
        step = next_step(groups, wanted, limits_of(AUTO, groups, wanted, capacity), capacity - len(groups))
        yield groups, step
        if not step:
            return
        kept = [g for g in groups if g.ordinal not in step.delete]
        kept = [replace(g, ready=True) if g.current else g for g in kept]
        groups = kept + [Group(ordinal=n, current=True, ready=True) for n in step.create]
    raise AssertionError(f"no end in sight: {groups}")


@pytest.mark.parametrize("wanted", range(6))
def test_auto_ends_on_any_cluster_uses_no_gpu_that_does_not_exist_and_keeps_all_but_one(wanted: int) -> None:
    for ready, unready, spare in itertools.product(range(6), range(4), range(4)):
        start = [*old(ready), *(Group(ordinal=ready + n, current=False, ready=False) for n in range(unready))]
        capacity = max(1, len(start) + spare)
        promised = min(ready, wanted, capacity) - (1 if capacity <= wanted else 0)
        last: list[Group] = start
        for groups, step in trace(start, wanted, capacity):
            last = groups
            assert len(groups) + len(step.create) <= capacity
            assert len(groups) + len(step.create) <= max(len(start), wanted + 1)
            left = sum(g.ready and g.ordinal not in step.delete for g in groups)
            assert left >= min(promised, sum(g.ready for g in groups)), f"{wanted} of {capacity}: {groups} -> {step}"
        assert is_complete(last, min(wanted, capacity)), f"{wanted} of {capacity}: {start} ended at {last}"
