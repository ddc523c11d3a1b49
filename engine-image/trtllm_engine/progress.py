"""Progress lines: one JSON object per line, percent never falling, an estimate of what is left."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from trtllm_engine.contract import ExitCode, Progress, Step
from trtllm_engine.failure import Failure

MIN_SECONDS: Final = 1.0
"""Between two lines of one step, so that logs stay small."""


def stopped() -> Failure:
    """The pod was told to stop; what it did so far may be done again."""
    return Failure(ExitCode.TRY_AGAIN, "stopped by SIGTERM before it was done")


class Reporter:
    """Reports how far a pod is, from what its current step says about itself.

    `shares` says how the hundred percent are divided among the steps, in the order in which they run. Thread-safe:
    builders report from threads of their own.
    """

    def __init__(
        self,
        shares: Mapping[Step, float],
        rank: int = 0,
        emit: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shares = shares
        self._total = sum(shares.values())
        self._rank = rank
        self._emit = emit or _print_line
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._percent = 0.0
        self._last_line = float("-inf")
        self._stopped = False
        self.step: Step | None = None
        """The step that runs, or ran last."""
        self.seconds: dict[str, float] = {}
        """Wall seconds of every finished step."""

    def stop(self) -> None:
        """Make every further report raise TRY_AGAIN in the thread that makes it: how a step is interrupted."""
        self._stopped = True

    @contextmanager
    def during(self, step: Step, detail: str | None = None) -> Iterator[None]:
        """Run a step: one line at its start and one at its end."""
        begun = self._clock()
        self.step = step
        self._report(0.0, detail, always=True)
        yield
        self.seconds[step.value] = round(self._clock() - begun, 3)
        self._report(1.0, None, always=True)

    def at(self, fraction: float, detail: str | None = None) -> None:
        """How much of the current step is done, 0 to 1; lines are dropped when they come too fast."""
        self._report(fraction, detail, always=False)

    def _report(self, fraction: float, detail: str | None, *, always: bool) -> None:
        step = self.step
        assert step is not None, "progress is reported within a step"
        if self._stopped:
            raise stopped()
        with self._lock:
            now = self._clock()
            self._percent = max(self._percent, 100.0 * self._done(step, min(max(fraction, 0.0), 1.0)) / self._total)
            if not always and now - self._last_line < MIN_SECONDS:
                return
            self._last_line = now
            line = Progress(
                ts=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                rank=self._rank,
                step=step,
                percent=round(self._percent, 1),
                eta_seconds=self._eta(now),
                detail=detail,
            )
            self._emit(line.to_json())

    def _done(self, current: Step, fraction: float) -> float:
        before = 0.0
        for step, share in self._shares.items():
            if step is current:
                return before + fraction * share
            before += share
        return before

    def _eta(self, now: float) -> int | None:
        """What is left if it goes on as fast as so far; unknown in the first percent."""
        if self._percent < 1.0:
            return None
        return round((now - self._started) * (100.0 - self._percent) / self._percent)


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
