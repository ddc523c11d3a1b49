"""Who computes what in the next step: slots, order, budget, and room for padding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_engine.serve.scheduler import QueueFull, Scheduler, Sequence, Step


def scheduler(slots: int = 2, context: int = 32, waiting: int = 8, budget: int = 8) -> Scheduler:
    return Scheduler(slots=slots, max_seq_len=context, max_waiting=waiting, prefill_budget=budget)


def sequence(tokens: int) -> Sequence:
    return Sequence(prompt=list(range(tokens)))


def planned(scheduled: Scheduler) -> Step:
    step = scheduled.plan()
    assert step is not None
    return step


def compute(scheduled: Scheduler, step: Step) -> None:
    for chunk in [*step.prefill, *step.decode]:
        scheduled.advance(chunk, 7 if chunk.samples else None)


def test_a_long_prompt_comes_in_chunks_while_others_go_on_decoding() -> None:
    s = scheduler(budget=4)
    short, long = sequence(2), sequence(10)
    s.add(short)
    compute(s, planned(s))
    s.add(long)
    seen = []
    for _ in range(4):
        step = planned(s)
        seen.append(([(c.sequence is long, list(c.tokens)) for c in step.prefill], [c.sequence for c in step.decode]))
        compute(s, step)
    assert seen == [
        ([(True, [0, 1, 2, 3])], [short]),
        ([(True, [4, 5, 6, 7])], [short]),
        ([(True, [8, 9])], [short]),
        ([], [short, long]),
    ]


def test_only_the_last_chunk_of_a_prompt_chooses_a_token() -> None:
    s = scheduler(budget=4)
    s.add(sequence(6))
    sampled = []
    for _ in range(3):
        step = planned(s)
        sampled += [chunk.samples for chunk in [*step.prefill, *step.decode]]
        compute(s, step)
    assert sampled == [False, True, True]


def test_short_prompts_share_a_step_within_the_budget() -> None:
    s = scheduler(slots=4, budget=8)
    for length in (3, 2, 4, 1):
        s.add(sequence(length))
    assert [c.length for c in planned(s).prefill] == [3, 2], "padded to 4, a third would need 12 of 8"


def test_a_prompt_is_not_padded_beyond_the_end_of_its_slot() -> None:
    s = scheduler(slots=2, context=12, budget=10)
    late, early = sequence(11), sequence(5)
    s.add(late)
    compute(s, planned(s))
    s.add(early)
    assert [(c.sequence is late, c.length) for c in planned(s).prefill] == [(True, 1)], "10 + 5 is beyond 12"


def test_slots_go_to_the_longest_waiting_and_are_used_again() -> None:
    s = scheduler(slots=1)
    first, second, third = sequence(1), sequence(1), sequence(1)
    for each in (first, second, third):
        s.add(each)
    s.plan()
    assert (s.running, list(s.waiting)) == ([first], [second, third])
    s.remove(first)
    s.plan()
    assert (s.running, second.slot, first.slot) == ([second], 0, None)


def test_a_waiting_sequence_can_leave() -> None:
    s = scheduler(slots=1)
    first, second = sequence(1), sequence(1)
    s.add(first)
    s.add(second)
    s.plan()
    s.remove(second)
    s.remove(second)
    assert (s.running, list(s.waiting)) == ([first], [])


def test_the_queue_is_bounded_beside_the_free_slots() -> None:
    s = scheduler(slots=2, waiting=1)
    for _ in range(3):
        s.add(sequence(1))
    with pytest.raises(QueueFull):
        s.add(sequence(1))
    s.plan()
    with pytest.raises(QueueFull):
        s.add(sequence(1))
    s.remove(s.running[0])
    s.add(sequence(1))


def test_sequences_of_one_request_are_queued_all_or_none() -> None:
    s = scheduler(slots=2, waiting=1)
    with pytest.raises(QueueFull):
        s.add(*[sequence(1) for _ in range(4)])
    assert not s.waiting
    s.add(*[sequence(1) for _ in range(3)])
    assert len(s.waiting) == 3


def test_nothing_to_do_is_no_step() -> None:
    assert scheduler().plan() is None


@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=12),
    slots=st.integers(1, 5),
    budget=st.integers(1, 24),
    answers=st.integers(1, 4),
)
def test_everyone_is_answered_within_the_rules(lengths: list[int], slots: int, budget: int, answers: int) -> None:
    s = scheduler(slots=slots, context=24, waiting=99, budget=budget)
    sequences = [sequence(length) for length in lengths]
    for each in sequences:
        s.add(each)
    while step := s.plan():
        chunks = [*step.prefill, *step.decode]
        taken = [chunk.sequence.slot for chunk in chunks]
        assert len(set(taken)) == len(taken) <= slots
        width = max((c.length for c in step.prefill), default=0)
        assert width * len(step.prefill) <= budget
        assert all(c.sequence.computed + width <= 24 for c in step.prefill)
        compute(s, step)
        for each in list(s.running):
            if len(each.output) == answers:
                s.remove(each)
    assert [len(each.output) for each in sequences] == [answers] * len(sequences)
    assert [each.computed for each in sequences] == [length + answers - 1 for length in lengths]
