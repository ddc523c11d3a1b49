"""Workers: one failure stops one key, one hanging key stops one worker."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.unit.reconcile.builders import a_key
from tests.unit.reconcile.virtual_time import now, run
from trtllm_operator.reconcile.queue import Queue
from trtllm_operator.reconcile.store import Key
from trtllm_operator.reconcile.worker import Reconcile, run_workers

A, B = a_key("a"), a_key("b")


class Busy(Exception):
    """An error that a busy cluster brings with it."""


def look_for(seconds: float, reconcile: Reconcile, *keys: Key, workers: int = 2) -> list[tuple[float, str]]:
    """Let workers run for a while in virtual time, with these keys asked for; returns what was observed."""

    async def scenario() -> list[tuple[float, str]]:
        observed: list[tuple[float, str]] = []
        queue = Queue(clock=now, random=lambda: 0.0)
        for key in keys:
            queue.add(key)
        running = asyncio.create_task(
            run_workers(
                queue,
                reconcile,
                count=workers,
                clock=now,
                expected=(Busy,),
                observe=lambda duration, result: observed.append((round(duration, 3), result)),
            )
        )
        await asyncio.sleep(seconds)
        queue.close()
        await running
        return observed

    return run(scenario())


def test_a_key_is_looked_at_again_after_the_time_that_it_named() -> None:
    looks = []

    async def reconcile(key: Key) -> float | None:
        looks.append(now())
        return 10.0

    look_for(35, reconcile, A)
    assert [round(at - looks[0]) for at in looks] == [0, 10, 20, 30]


def test_without_a_time_only_an_event_brings_the_next_look() -> None:
    looks = []

    async def reconcile(key: Key) -> float | None:
        looks.append(key)
        return None

    look_for(3_600, reconcile, A)
    assert looks == [A]


def test_a_failing_key_is_tried_again_and_others_go_on() -> None:
    looks = []

    async def reconcile(key: Key) -> float | None:
        looks.append(key)
        if key == A:
            raise RuntimeError("broken")
        return 1.0

    look_for(4, reconcile, A, B)
    assert looks.count(A) == 4  # at 0, 0.5, 1.5 and 3.5 s
    assert looks.count(B) == 4


def test_an_unexpected_error_is_logged_with_its_key_and_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def reconcile(key: Key) -> float | None:
        raise RuntimeError("broken")

    look_for(0.1, reconcile, A)
    (record,) = caplog.records
    assert record.getMessage() == "Pod default/a: reconciling failed; trying again in 0.5 s"
    assert record.exc_info is not None


def test_an_expected_error_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def reconcile(key: Key) -> float | None:
        raise Busy("409 Conflict")

    with caplog.at_level(logging.INFO):
        observed = look_for(0.1, reconcile, A)
    (record,) = caplog.records
    assert record.getMessage() == "Pod default/a: 409 Conflict; trying again in 0.5 s"
    assert record.exc_info is None
    assert observed == [(0.0, "retried")]


def test_a_hanging_key_does_not_hold_up_the_others() -> None:
    looks = []

    async def reconcile(key: Key) -> float | None:
        if key == A:
            await asyncio.sleep(1_000)
        looks.append((key, now()))
        return None

    look_for(2_000, reconcile, A, B)
    (first, at), (second, later) = looks
    assert (first, second) == (B, A)
    assert later - at == pytest.approx(1_000)


def test_closing_lets_the_work_in_hand_finish() -> None:
    finished = []

    async def reconcile(key: Key) -> float | None:
        await asyncio.sleep(10)
        finished.append(key)
        return None

    observed = look_for(1, reconcile, A)
    assert finished == [A]
    assert observed == [(10.0, "done")]
