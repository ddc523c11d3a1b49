"""Progress lines: never falling, few, and with an estimate."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trtllm_engine.build.build_clock import COMPILING, BuildClock
from trtllm_engine.contract import ExitCode, Progress, Step
from trtllm_engine.failure import Failure
from trtllm_engine.progress import Reporter


class Clock:
    """A double of the monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def recording(clock: Clock, **shares: float) -> tuple[Reporter, list[Progress]]:
    lines: list[Progress] = []
    reporter = Reporter(
        {Step(name): share for name, share in shares.items()},
        rank=3,
        emit=lambda line: lines.append(Progress.from_json(line)),
        clock=clock,
    )
    return reporter, lines


@settings(deadline=None)
@given(st.lists(st.floats(-1, 2)), st.lists(st.floats(-1, 2)))
def test_percent_never_falls_and_ends_at_a_hundred(first: list[float], second: list[float]) -> None:
    clock = Clock()
    reporter, lines = recording(clock, weights=30, build=70)
    for step, fractions in ((Step.WEIGHTS, first), (Step.BUILD, second)):
        with reporter.during(step):
            for fraction in fractions:
                clock.now += 2.0
                reporter.at(fraction)
    percents = [line.percent for line in lines]
    assert percents == sorted(percents)
    assert (percents[0], percents[-1]) == (0.0, 100.0)


def test_lines_of_one_step_come_at_most_once_a_second() -> None:
    clock = Clock()
    reporter, lines = recording(clock, build=1)
    with reporter.during(Step.BUILD):
        for index in range(40):
            clock.now += 0.25
            reporter.at(index / 40)
    assert len(lines) == 1 + 10 + 1


def test_the_estimate_is_what_is_left_at_the_speed_so_far() -> None:
    clock = Clock()
    reporter, lines = recording(clock, build=1)
    with reporter.during(Step.BUILD):
        clock.now += 30.0
        reporter.at(0.25, "layer 5/20")
    assert (lines[0].eta_seconds, lines[1].eta_seconds) == (None, 90)
    assert (lines[1].rank, lines[1].detail, lines[1].step) == (3, "layer 5/20", Step.BUILD)


def test_seconds_are_kept_for_each_step() -> None:
    clock = Clock()
    reporter, _ = recording(clock, weights=1, build=1)
    with reporter.during(Step.WEIGHTS):
        clock.now += 2.5
    with reporter.during(Step.BUILD):
        clock.now += 4.0
    assert reporter.seconds == {"weights": 2.5, "build": 4.0}


def test_a_stopped_step_ends_at_its_next_report() -> None:
    reporter, _ = recording(Clock(), build=1)
    try:
        with reporter.during(Step.BUILD):
            reporter.stop()
            reporter.at(0.5)
        raise AssertionError("it went on")
    except Failure as failure:
        assert failure.code is ExitCode.TRY_AGAIN


def test_a_build_moves_all_the_time_and_is_done_with_its_last_profile() -> None:
    clock = Clock()
    build = BuildClock(profiles=2, expected=10.0, clock=clock)
    seen = []
    for second in range(60):
        clock.now += 1.0
        if second in (29, 59):
            build.finish("Optimizing graph")
            build.finish(COMPILING)
        seen.append(build.fraction())
    assert seen == sorted(seen)
    assert seen[28] < 0.5 <= seen[29] < seen[58] < 1.0 == seen[59]
