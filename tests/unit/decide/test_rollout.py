"""The step planner over all small states: it ends as soon as any planner could, and keeps what it promises."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

import pytest

from trtllm_operator.decide.rollout import AMPLE, Group, Limits, Step, hold, is_complete, next_step

MOST_REPLICAS: Final = 5
MOST_SPARE: Final = 3
BOUNDS: Final = [(surge, down) for surge, down in itertools.product(range(3), range(3)) if surge or down]


class State(NamedTuple):
    """Groups by kind. Nothing else about them matters to how many steps there are."""

    old_ready: int = 0
    old_unready: int = 0
    new_ready: int = 0
    new_unready: int = 0
    old_leaving: int = 0
    new_leaving: int = 0

    @property
    def ready(self) -> int:
        return self.old_ready + self.new_ready

    @property
    def leaving(self) -> int:
        return self.old_leaving + self.new_leaving


class Setting(NamedTuple):
    """What does not change during a rollout; `capacity` is how many groups have GPUs, existing ones included."""

    wanted: int
    surge: int
    unavailable: int
    capacity: int

    @property
    def limits(self) -> Limits:
        return Limits(surge=self.surge, available=max(0, self.wanted - self.unavailable))


class Move(NamedTuple):
    """Groups of each kind to delete, and groups to create."""

    old_ready: int
    old_unready: int
    new_ready: int
    new_unready: int
    create: int


def groups_of(state: State) -> list[Group]:
    kinds = [
        *[(False, True, False)] * state.old_ready,
        *[(False, False, False)] * state.old_unready,
        *[(True, True, False)] * state.new_ready,
        *[(True, False, False)] * state.new_unready,
        *[(False, False, True)] * state.old_leaving,
        *[(True, False, True)] * state.new_leaving,
    ]
    return [Group(ordinal=n, current=c, ready=r, deleting=d) for n, (c, r, d) in enumerate(kinds)]


def planned(state: State, setting: Setting) -> Move:
    groups = groups_of(state)
    step = next_step(groups, setting.wanted, setting.limits, setting.capacity - sum(state))
    deleted = [g for g in groups if g.ordinal in step.delete]
    assert not any(g.deleting for g in deleted)
    assert not {g.ordinal for g in groups} & set(step.create)

    def count(current: bool, ready: bool) -> int:
        return sum((g.current, g.ready) == (current, ready) for g in deleted)

    return Move(count(False, True), count(False, False), count(True, True), count(True, False), len(step.create))


def is_allowed(state: State, move: Move, setting: Setting) -> bool:
    """The promises: availability, replicas and surge, GPUs. Deleted groups hold theirs until they are gone."""
    total = sum(state)
    left = state.ready - move.old_ready - move.new_ready
    keeps = not (move.old_ready or move.new_ready) or left >= setting.limits.available
    return keeps and (not move.create or total + move.create <= min(setting.wanted + setting.surge, setting.capacity))


def settled(state: State, move: Move) -> State:
    """The world after a step: what was deleted is gone, and every new group is ready, because it found its GPUs."""
    return State(
        old_ready=state.old_ready - move.old_ready,
        old_unready=state.old_unready - move.old_unready,
        new_ready=state.new_ready - move.new_ready + state.new_unready - move.new_unready + move.create,
    )


def is_done(state: State, setting: Setting) -> bool:
    return state == State(new_ready=setting.wanted)


def allowed_moves(state: State, setting: Setting) -> Iterator[Move]:
    most = max(0, min(setting.wanted + setting.surge, setting.capacity) - sum(state))
    counts = [range(n + 1) for n in (*state[:4], most)]
    return (move for move in itertools.starmap(Move, itertools.product(*counts)) if is_allowed(state, move, setting))


@cache
def fewest_steps(setting: Setting) -> dict[State, int]:
    """By breadth-first search backwards from the end, over every move that the promises allow."""
    before: defaultdict[State, set[State]] = defaultdict(set)
    seen = set(starts(setting))
    todo = deque(seen)
    while todo:
        state = todo.popleft()
        for move in allowed_moves(state, setting):
            after = settled(state, move)
            before[after].add(state)
            if after not in seen:
                seen.add(after)
                todo.append(after)
    end = State(new_ready=setting.wanted)
    steps, todo = {end: 0}, deque([end])
    while todo:
        state = todo.popleft()
        for earlier in before[state] - steps.keys():
            steps[earlier] = steps[state] + 1
            todo.append(earlier)
    return steps


def starts(setting: Setting) -> list[State]:
    """Every mix of old and new, ready and unready groups that leaves 0 to 3 spare."""
    mixes = itertools.product(range(min(setting.capacity, MOST_REPLICAS) + 1), repeat=4)
    return [
        State(*mix)
        for mix in mixes
        if sum(mix) <= MOST_REPLICAS and 0 <= setting.capacity - max(sum(mix), setting.wanted) <= MOST_SPARE
    ]


def settings(wanted: int, surge: int, unavailable: int) -> Iterator[Setting]:
    return (
        Setting(wanted, surge, unavailable, capacity)
        for capacity in range(max(1, wanted), MOST_REPLICAS + MOST_SPARE + 1)
    )


@pytest.mark.parametrize(("surge", "unavailable"), BOUNDS)
@pytest.mark.parametrize("wanted", range(MOST_REPLICAS + 1))
def test_a_rollout_keeps_its_promises_and_takes_as_few_steps_as_are_possible(
    wanted: int, surge: int, unavailable: int
) -> None:
    for setting in settings(wanted, surge, unavailable):
        best = fewest_steps(setting)
        for start in starts(setting):
            state, taken = start, 0
            while not is_done(state, setting):
                move = planned(state, setting)
                assert is_allowed(state, move, setting), f"{setting}: {start} ... {state} -> {move}"
                after = settled(state, move)
                if after == state:
                    assert start not in best, f"{setting}: {start} stops at {state}, and {best[start]} steps are enough"
                    break
                state, taken = after, taken + 1
                assert taken <= 2 * sum(start) + 2 * wanted + 2, f"{setting}: no end in sight from {start}"
            else:
                assert taken == best[start], f"{setting}: {start} took {taken} steps, and {best[start]} are enough"


@pytest.mark.parametrize("wanted", range(1, 6))
def test_the_only_rollout_that_cannot_end_is_one_that_may_do_without_nothing_and_has_no_room(wanted: int) -> None:
    """So the planner waits only where every planner must."""
    full = Setting(wanted, surge=1, unavailable=0, capacity=wanted)
    assert State(old_ready=wanted) not in fewest_steps(full)
    assert State(old_ready=wanted) in fewest_steps(full._replace(unavailable=1))
    assert State(old_ready=wanted) in fewest_steps(full._replace(capacity=wanted + 1))


# --- a world that takes its time --------------------------------------------------------------------------------------


def what_may_happen(state: State) -> Iterator[State]:
    """One thing at a time, in any order: a group has left, a new one gets ready, one that served fails."""
    if state.old_leaving:
        yield state._replace(old_leaving=state.old_leaving - 1)
    if state.new_leaving:
        yield state._replace(new_leaving=state.new_leaving - 1)
    if state.new_unready:
        yield state._replace(new_unready=state.new_unready - 1, new_ready=state.new_ready + 1)


def after_step(state: State, move: Move) -> State:
    return State(
        old_ready=state.old_ready - move.old_ready,
        old_unready=state.old_unready - move.old_unready,
        new_ready=state.new_ready - move.new_ready,
        new_unready=state.new_unready - move.new_unready + move.create,
        old_leaving=state.old_leaving + move.old_ready + move.old_unready,
        new_leaving=state.new_leaving + move.new_ready + move.new_unready,
    )


@pytest.mark.parametrize(("surge", "unavailable"), BOUNDS)
def test_whenever_the_planner_looks_it_keeps_its_promises_and_something_is_left_to_happen(
    surge: int, unavailable: int
) -> None:
    """Every order of events, with a look after each or after none."""
    for wanted in range(4):
        for setting in settings(wanted, surge, unavailable):
            if setting.capacity > wanted + 2:
                continue
            best, seen = fewest_steps(setting), set(starts(setting))
            todo = list(seen)
            while todo:
                state = todo.pop()
                move = planned(state, setting)
                assert is_allowed(state, move, setting), f"{setting}: {state} -> {move}"
                looked = after_step(state, move)
                following = {looked, *what_may_happen(state)} - {state}
                if not following and not is_done(state, setting):
                    assert state not in best, f"{setting}: nothing happens at {state}"
                new = following - seen
                seen |= new
                todo += new


# --- by example -------------------------------------------------------------------------------------------------------

ONE_MORE: Final = Limits(surge=1, available=1)


def test_a_new_deployment_creates_all_groups_at_once_on_the_lowest_ordinals() -> None:
    assert next_step([], 3, Limits(surge=1, available=3)) == Step(create=(0, 1, 2))


def test_groups_are_made_only_where_there_are_gpus_for_them() -> None:
    assert next_step([], 3, Limits(surge=1, available=3), room=2) == Step(create=(0, 1))
    assert next_step([], 3, Limits(surge=1, available=3), room=-1) == Step()


def test_scale_down_removes_the_unhealthy_group_first_then_the_highest_ordinal() -> None:
    groups = [Group(ordinal=n, current=True, ready=n != 1) for n in range(4)]
    assert next_step(groups, 3, Limits(surge=1, available=3)).delete == (1,)
    assert next_step(groups, 2, Limits(surge=1, available=2)).delete == (1, 3)


def test_a_single_replica_is_replaced_only_after_its_successor_is_ready() -> None:
    old = Group(ordinal=0, current=False, ready=True)
    assert next_step([old], 1, ONE_MORE) == Step(create=(1,))
    loading = Group(ordinal=1, current=True, ready=False)
    assert next_step([old, loading], 1, ONE_MORE) == Step()
    assert next_step([old, replace(loading, ready=True)], 1, ONE_MORE) == Step(delete=(0,))


def test_groups_that_are_leaving_count_until_they_are_gone() -> None:
    leaving = Group(ordinal=0, current=False, ready=False, deleting=True)
    assert next_step([leaving], 1, Limits(surge=0, available=0)) == Step()
    assert next_step([leaving], 1, ONE_MORE) == Step(create=(1,))


def test_unready_old_groups_go_at_once_also_when_none_may_be_unavailable() -> None:
    groups = [Group(ordinal=n, current=False, ready=False) for n in range(2)]
    assert next_step(groups, 2, Limits(surge=1, available=2)) == Step(create=(2,), delete=(0, 1))


def test_a_second_change_turns_to_the_newest_and_leaves_no_group_behind() -> None:
    """The planner knows one revision and the others, however many they are."""
    first, second = Group(ordinal=0, current=False, ready=True), Group(ordinal=1, current=False, ready=False)
    groups, limits = [first, second], Limits(surge=1, available=1)
    assert next_step(groups, 1, limits) == Step(delete=(1,))
    assert next_step([first], 1, limits) == Step(create=(1,))
    assert next_step([first, Group(ordinal=1, current=True, ready=True)], 1, limits) == Step(delete=(0,))


def test_recreate_makes_nothing_before_every_old_group_is_gone() -> None:
    limits = Limits(surge=0, available=0, recreate=True)
    old = [Group(ordinal=n, current=False, ready=True) for n in range(2)]
    assert next_step(old, 2, limits) == Step(delete=(0, 1))
    assert next_step([replace(old[0], deleting=True)], 2, limits) == Step()
    assert next_step([], 2, limits) == Step(create=(0, 1))


def test_complete_is_exactly_the_wanted_groups_all_new_all_ready() -> None:
    new = Group(ordinal=0, current=True, ready=True)
    assert is_complete([new], 1) and is_complete([], 0)
    for other in ([], [new, replace(new, ordinal=1)], [replace(new, current=False)], [replace(new, deleting=True)]):
        assert not is_complete(other, 1)


def test_holding_keeps_the_number_and_replaces_only_what_serves_nobody() -> None:
    serving, other = Group(ordinal=0, current=True, ready=True), Group(ordinal=1, current=False, ready=True)
    assert hold([serving, other], 2) == Step()
    assert hold([serving, replace(other, ready=False)], 2) == Step(create=(2,), delete=(1,))
    assert hold([serving, other], 1) == Step(delete=(1,))
    assert hold([serving], 3) == Step(create=(1, 2))
    assert hold([replace(serving, ready=False)], 1) == Step(), "its own pods come back by themselves"


def test_where_gpus_limit_nothing_the_room_is_ample() -> None:
    assert AMPLE > 1000, "more than replicas can be"
