"""Steps that wait for each other and otherwise run at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Failure(Exception):
    """What failed, in words for the person at the terminal; `advice` says what to do."""

    def __init__(self, message: str, *, tail: str = "", advice: str = "") -> None:
        super().__init__(message)
        self.tail = tail
        """The end of the log that shows it."""
        self.advice = advice


class Cancelled(Exception):
    """A step gave up because another one failed, or the user pressed Ctrl-C."""


class State(Enum):
    """Where a step stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Progress:
    """What a running step tells the screen; written by its own thread alone."""

    detail: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raises `Cancelled` once the run is to end: long actions call it between their parts."""
        if self.cancelled.is_set():
            raise Cancelled

    def pause(self, seconds: float) -> None:
        """Wait between two looks at something; ends at once, with `Cancelled`, when the run does."""
        if self.cancelled.wait(seconds):
            raise Cancelled


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the demonstration."""

    name: str
    title: str
    expected: float
    """Seconds that it takes when nothing is there yet; for the eye, nothing depends on it."""
    action: Callable[[Progress], None]
    """Idempotent: after an interruption the whole run starts again, and finds what is done already."""
    needs: tuple[str, ...] = ()


@dataclass(slots=True)
class Line:
    """A step and how it goes."""

    step: Step
    progress: Progress
    state: State = State.WAITING
    started: float = 0.0
    ended: float = 0.0

    def elapsed(self, now: float) -> float:
        """Seconds that it has run."""
        if self.state is State.WAITING:
            return 0.0
        return (self.ended or now) - self.started


class Run:
    """Runs steps, each in a thread of its own as soon as what it needs is done.

    The first failure cancels the rest; `wait()` raises it. Times are of the monotonic clock.
    """

    def __init__(self, steps: Sequence[Step], clock: Callable[[], float] = time.monotonic) -> None:
        names = [step.name for step in steps]
        for index, step in enumerate(steps):
            if late := set(step.needs) - set(names[:index]):
                raise ValueError(f"step {step.name!r} needs {sorted(late)[0]!r}, which does not come before it")
        self._clock = clock
        self._cancelled = threading.Event()
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self.began = clock()
        self.lines = [Line(step, Progress(cancelled=self._cancelled)) for step in steps]

    def start(self) -> None:
        """Start what needs nothing; the rest follows by itself."""
        with self._changed:
            self._advance()

    def cancel(self) -> None:
        """Tell running steps to end, and start no others."""
        self._cancelled.set()

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; true when nothing runs any more. Raises the first failure then."""
        with self._changed:
            ended = self._changed.wait_for(self._is_over, seconds)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    @property
    def now(self) -> float:
        return self._clock()

    def seconds(self) -> Mapping[str, float]:
        """How long each step took."""
        return {line.step.name: round(line.elapsed(self.now), 1) for line in self.lines}

    def _is_over(self) -> bool:
        states = {line.state for line in self.lines}
        if State.RUNNING in states:
            return False
        return self._cancelled.is_set() or State.WAITING not in states

    def _advance(self) -> None:
        """Start every step whose needs are met. The caller holds the lock."""
        done = {line.step.name for line in self.lines if line.state is State.DONE}
        for line in self.lines:
            if line.state is State.WAITING and done.issuperset(line.step.needs) and not self._cancelled.is_set():
                line.state, line.started = State.RUNNING, self._clock()
                threading.Thread(target=self._perform, args=(line,), name=line.step.name, daemon=True).start()
        self._changed.notify_all()

    def _perform(self, line: Line) -> None:
        outcome, failure = State.DONE, None
        try:
            line.step.action(line.progress)
        except Cancelled:
            outcome = State.CANCELLED
        except BaseException as error:
            outcome, failure = State.FAILED, error
            self._cancelled.set()
        with self._changed:
            line.state, line.ended = outcome, self._clock()
            self._failure = self._failure or failure
            self._advance()
