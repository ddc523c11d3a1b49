"""The demo's runner keeps the order, does at once what is independent, and ends in order when something fails."""

from __future__ import annotations

import threading

import pytest

from tests.demo.steps import Failure, Progress, Run, State, Step


def step(name: str, action: object = None, needs: tuple[str, ...] = ()) -> Step:
    """A step that does nothing, or what it is given."""
    perform = action if callable(action) else lambda progress: None
    return Step(name, name, 1, action=perform, needs=needs)


def states(run: Run) -> dict[str, State]:
    return {line.step.name: line.state for line in run.lines}


def test_a_step_starts_only_when_what_it_needs_is_done() -> None:
    order: list[str] = []
    run = Run(
        [
            step("cluster", lambda progress: order.append("cluster")),
            step("install", lambda progress: order.append("install"), needs=("cluster",)),
            step("ask", lambda progress: order.append("ask"), needs=("install",)),
        ]
    )
    run.start()
    assert run.wait(5)
    assert order == ["cluster", "install", "ask"]


def test_independent_steps_run_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=5)
    run = Run([step("images", lambda progress: meeting.wait()), step("model", lambda progress: meeting.wait())])
    run.start()
    assert run.wait(5)
    assert set(states(run).values()) == {State.DONE}


def test_a_failure_cancels_what_runs_and_starts_nothing_more() -> None:
    running = threading.Event()

    def fail(progress: Progress) -> None:
        running.wait(5)
        raise Failure("no space left")

    def last(progress: Progress) -> None:
        running.set()
        progress.pause(60)

    run = Run([step("images", fail), step("programs", last), step("load", needs=("images",))])
    run.start()
    with pytest.raises(Failure, match="no space left"):
        run.wait(5)
    assert states(run) == {"images": State.FAILED, "programs": State.CANCELLED, "load": State.WAITING}


def test_an_interrupt_ends_the_run_without_a_failure() -> None:
    run = Run([step("programs", lambda progress: progress.pause(60)), step("cluster", needs=("programs",))])
    run.start()
    run.cancel()
    assert run.wait(5)
    assert states(run) == {"programs": State.CANCELLED, "cluster": State.WAITING}


def test_a_step_that_needs_a_later_one_is_a_mistake_of_the_author() -> None:
    with pytest.raises(ValueError, match="'load' needs 'images', which does not come before it"):
        Run([step("load", needs=("images",)), step("images")])
