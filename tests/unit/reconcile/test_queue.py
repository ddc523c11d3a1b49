"""The queue: no key is lost, none is in two hands, none starves."""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.reconcile.builders import a_key
from tests.unit.reconcile.virtual_time import now, run
from trtllm_operator.reconcile.queue import Queue
from trtllm_operator.reconcile.store import Key

A, B, C = a_key("a"), a_key("b"), a_key("c")


class Clock:
    """Stands in for the monotonic clock; a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_queue(clock: Clock, jitter: float = 0.0) -> Queue:
    return Queue(clock=clock, random=lambda: jitter)


def test_keys_come_out_in_the_order_in_which_they_were_asked_for() -> None:
    queue = a_queue(Clock())
    for key in (B, A, C):
        queue.add(key)
    assert [queue.take(), queue.take(), queue.take(), queue.take()] == [B, A, C, None]


def test_a_key_that_is_asked_for_twice_comes_out_once() -> None:
    queue = a_queue(Clock())
    queue.add(A)
    queue.add(A)
    assert [queue.take(), queue.take()] == [A, None]


def test_of_two_times_the_earlier_counts() -> None:
    clock = Clock()
    queue = a_queue(clock)
    queue.add(A, after=60)
    queue.add(A, after=5)
    queue.add(A, after=30)
    clock.now += 5
    assert queue.take() == A
    queue.done(A)
    clock.now += 1_000
    assert queue.take() is None


def test_a_key_in_work_waits_for_its_worker_to_finish() -> None:
    queue = a_queue(Clock())
    queue.add(A)
    assert queue.take() == A
    queue.add(A)
    assert queue.take() is None
    queue.done(A)
    assert queue.take() == A


def test_a_failing_key_waits_twice_as_long_each_time_and_at_most_five_minutes() -> None:
    clock = Clock()
    queue = a_queue(clock)
    waits = []
    queue.add(A)
    for _ in range(12):
        assert queue.take() == A
        waits.append(queue.fail(A))
        clock.now += waits[-1]
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 64, 128, 150, 150, 150]


def test_jitter_spreads_the_retries_up_to_the_double() -> None:
    queue = a_queue(Clock(), jitter=0.999)
    queue.add(A)
    queue.take()
    assert 0.99 < queue.fail(A) < 1.0


def test_success_forgets_the_failures() -> None:
    clock = Clock()
    queue = a_queue(clock)
    for _ in range(3):
        queue.add(A)
        queue.take()
        queue.fail(A)
    queue.forget(A)
    queue.add(A)
    queue.take()
    assert queue.fail(A) == 0.5


def test_news_bring_a_failed_key_forward() -> None:
    queue = a_queue(Clock())
    queue.add(A)
    queue.take()
    queue.fail(A)
    assert queue.take() is None
    queue.add(A)
    assert queue.take() == A


def test_it_is_drained_when_nothing_is_due_in_work_or_failing() -> None:
    clock = Clock()
    queue = a_queue(clock)
    assert queue.is_drained
    queue.add(A)
    assert not queue.is_drained
    queue.take()
    assert not queue.is_drained
    queue.fail(A)
    assert not queue.is_drained
    clock.now += 1
    queue.take()
    queue.forget(A)
    queue.add(A, after=600)
    queue.done(A)
    assert queue.is_drained


def test_a_waiting_worker_gets_a_key_at_its_time() -> None:
    async def scenario() -> tuple[Key | None, float]:
        queue = Queue(clock=now, random=lambda: 0.0)
        start = now()
        queue.add(A, after=30)
        queue.add(B, after=20)
        await queue.get()
        return await queue.get(), now() - start

    key, waited = run(scenario())
    assert key == A
    assert abs(waited - 30) < 0.01


def test_a_waiting_worker_takes_over_the_alarm_of_one_that_got_busy() -> None:
    """Two workers wait for a key that is due later; one leaves with other work, the other must still wake in time."""

    async def scenario() -> float:
        queue = Queue(clock=now, random=lambda: 0.0)
        start = now()
        queue.add(A, after=10)
        idle = [asyncio.create_task(queue.get()) for _ in range(2)]
        await asyncio.sleep(1)
        queue.add(B)
        await asyncio.gather(*idle)
        return now() - start

    assert abs(run(scenario()) - 10) < 0.01


def test_closing_sends_waiting_workers_home() -> None:
    async def scenario() -> Key | None:
        queue = Queue(clock=now, random=lambda: 0.0)
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(1)
        queue.close()
        return await waiting

    assert run(scenario()) is None


class QueueMachine(RuleBasedStateMachine):
    """Any order of wishes, work and failures, compared with the simplest model of what was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.queue = a_queue(self.clock)
        self.owed: dict[Key, float] = {}
        """When each key that was asked for must come out at the latest, if a worker is free."""
        self.working: set[Key] = set()

    @rule(key=st.sampled_from([A, B, C]), after=st.sampled_from([0.0, 0.0, 1.0, 5.0]))
    def ask(self, key: Key, after: float) -> None:
        self.queue.add(key, after=after)
        self._owe(key, after)

    @rule()
    def take(self) -> None:
        due = {key for key, at in self.owed.items() if at <= self.clock.now and key not in self.working}
        key = self.queue.take()
        assert (key is None) == (not due)
        if key is not None:
            assert key in due, "only what is due, and not what is in work"
            assert self.owed.pop(key) <= min((self.owed[other] for other in due - {key}), default=self.clock.now)
            self.working.add(key)

    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, fails: bool) -> None:
        if self.working:
            key = data.draw(st.sampled_from(sorted(self.working)))
            self.working.remove(key)
            if fails:
                self._owe(key, self.queue.fail(key))
            else:
                self.queue.forget(key)
                self.queue.done(key)

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def counts_agree(self) -> None:
        ready = [key for key, at in self.owed.items() if at <= self.clock.now and key not in self.working]
        assert self.queue.ready == len(ready)
        assert self.queue.in_flight == len(self.working)

    def _owe(self, key: Key, after: float) -> None:
        self.owed[key] = min(self.owed.get(key, float("inf")), self.clock.now + after)


TestQueueLosesNothing = QueueMachine.TestCase
TestQueueLosesNothing.settings = settings(max_examples=60, stateful_step_count=30)
