"""The step planner over all small states: every trace ends, and no step of ours costs availability."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from trtllm_operator.decide.rollout import SURGE, Group, Step, is_complete, next_step


def start(old_ready: int, old_unready: int) -> list[Group]:
    states = [True] * old_ready + [False] * old_unready
    return [Group(ordinal=n, current=False, ready=ready) for n, ready in enumerate(states)]


def apply(groups: list[Group], step: Step) -> list[Group]:
    """The cluster after the step: deleted groups are on their way out, created ones are not ready yet."""
    kept = [replace(g, deleting=True, ready=False) if g.ordinal in step.delete else g for g in groups]
    return kept + [Group(ordinal=n, current=True, ready=False) for n in step.create]


def settle(groups: list[Group], capacity: int) -> list[Group]:
    """What the world does next: deleted groups are gone, new ones get ready while there is room for them."""
    live = [g for g in groups if not g.deleting]
    free = capacity - sum(not (g.current and not g.ready) for g in live)
    settled = []
    for group in sorted(live, key=lambda g: g.ordinal):
        if group.current and not group.ready:
            settled.append(replace(group, ready=free > 0, no_room=free <= 0))
            free -= 1
        else:
            settled.append(group)
    return settled


def trace(groups: list[Group], wanted: int, capacity: int) -> Iterator[tuple[list[Group], Step]]:
    for _ in range(40):
        if is_complete(groups, wanted):
            return
        step = next_step(groups, wanted)
        yield groups, step
        groups = settle(apply(groups, step), capacity)
    raise AssertionError(f"no end in sight: {groups}")


SMALL_STATES = [
    (ready, unready, wanted, spare)
    for ready, unready, wanted, spare in itertools.product(range(5), range(3), range(5), range(3))
]


@pytest.mark.parametrize(("ready", "unready", "wanted", "spare"), SMALL_STATES)
def test_every_rollout_ends_with_the_wanted_groups_all_new(ready: int, unready: int, wanted: int, spare: int) -> None:
    groups = start(ready, unready)
    for _ in trace(groups, wanted, capacity=max(ready + unready, wanted) + spare):
        pass  # trace raises if it does not end


@pytest.mark.parametrize(("ready", "unready", "wanted", "spare"), SMALL_STATES)
def test_with_room_for_a_surge_no_step_goes_below_what_served(
    ready: int, unready: int, wanted: int, spare: int
) -> None:
    promised = min(ready, wanted)
    for groups, step in trace(start(ready, unready), wanted, capacity=max(ready + unready, wanted) + SURGE + spare):
        left = [g for g in groups if g.ready and g.ordinal not in step.delete]
        assert len(left) >= promised, f"{groups} -> {step}"


@pytest.mark.parametrize("wanted", range(1, 5))
def test_without_room_old_groups_make_room_one_at_a_time(wanted: int) -> None:
    for groups, step in trace(start(wanted, 0), wanted, capacity=wanted):
        left = [g for g in groups if g.ready and g.ordinal not in step.delete]
        assert len(left) >= wanted - 1, f"{groups} -> {step}"


@pytest.mark.parametrize(("ready", "unready", "wanted", "spare"), SMALL_STATES)
def test_no_ordinal_is_taken_twice_and_live_groups_stay_within_the_surge(
    ready: int, unready: int, wanted: int, spare: int
) -> None:
    for groups, step in trace(start(ready, unready), wanted, capacity=max(ready + unready, wanted) + spare):
        assert not {g.ordinal for g in groups} & set(step.create)
        live = [g for g in groups if not g.deleting and g.ordinal not in step.delete]
        assert not step.create or len(live) + len(step.create) <= wanted + SURGE


def test_a_new_deployment_creates_all_groups_at_once_on_the_lowest_ordinals() -> None:
    assert next_step([], 3) == Step(create=(0, 1, 2))


def test_scale_down_removes_the_unhealthy_group_first_then_the_highest_ordinal() -> None:
    groups = [Group(ordinal=n, current=True, ready=n != 1) for n in range(4)]
    assert next_step(groups, 3).delete == (1,)
    assert next_step(groups, 2).delete == (1, 3)


def test_a_single_replica_is_replaced_only_after_its_successor_is_ready() -> None:
    old = Group(ordinal=0, current=False, ready=True)
    assert next_step([old], 1) == Step(create=(1,))
    loading = Group(ordinal=1, current=True, ready=False)
    assert next_step([old, loading], 1) == Step()
    assert next_step([old, replace(loading, ready=True)], 1) == Step(delete=(0,))


def test_a_surge_that_waits_for_the_gpus_of_the_old_group_makes_the_old_group_go() -> None:
    old = Group(ordinal=0, current=False, ready=True)
    stuck = Group(ordinal=1, current=True, ready=False, no_room=True)
    assert next_step([old, stuck], 1) == Step(delete=(0,), one_by_one=True)


def test_nothing_more_is_removed_while_an_old_group_is_still_leaving() -> None:
    leaving = Group(ordinal=0, current=False, ready=False, deleting=True)
    old = Group(ordinal=1, current=False, ready=True)
    stuck = Group(ordinal=2, current=True, ready=False, no_room=True)
    assert next_step([leaving, old, stuck], 2).delete == ()


def test_unready_old_groups_go_first() -> None:
    groups = [Group(ordinal=0, current=False, ready=True), Group(ordinal=1, current=False, ready=False)]
    assert next_step(groups, 2) == Step(create=(2, 3), delete=(1,))
