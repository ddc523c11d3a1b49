"""What the screen says about time."""

from __future__ import annotations

import pytest

from tests.demo.screen import duration, remaining
from tests.demo.steps import Line, Progress, State, Step


def line(
    name: str, expected: float, needs: tuple[str, ...] = (), state: State = State.WAITING, started: float = 0
) -> Line:
    return Line(
        Step(name, name, expected, action=lambda progress: None, needs=needs),
        Progress(),
        state,
        started,
    )


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59.4, "59s"), (60, "1m00s"), (185, "3m05s")])
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_time_left_is_that_of_the_longest_way() -> None:
    lines = [
        line("programs", 600),
        line("images", 420),
        line("cluster", 15, needs=("programs",)),
        line("load", 60, needs=("cluster", "images")),
    ]
    assert remaining(lines, now=0) == 675


def test_time_that_has_passed_is_not_counted_again() -> None:
    lines = [line("programs", 600, state=State.RUNNING, started=100), line("cluster", 15, needs=("programs",))]
    assert remaining(lines, now=300) == 415


def test_a_step_that_takes_longer_than_expected_counts_as_nearly_done() -> None:
    assert remaining([line("programs", 600, state=State.RUNNING)], now=900) == 0
