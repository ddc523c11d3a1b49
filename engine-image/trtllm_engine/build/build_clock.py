"""How far a TensorRT build is.

The builder reports phases, but nearly all of its time is one phase without steps for each optimization profile, in
which the kernels are compiled. So finished profiles are counted, and within one the fraction approaches 1 with time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from trtllm_engine.failure import Failure

COMPILING: Final = "Determining refit engines"
"""The phase of TensorRT 11 and TensorRT for RTX 1.7 in which a profile's kernels are compiled. Under another name the
estimate is coarser: everything counts as the first profile."""

SECONDS_PER_LAYER: Final = 0.1
BYTES_PER_SECOND: Final = 1e8
"""Measured on two cores: 5.3 GB of weights in 24 layers take 54 s, 0.27 GB in 30 layers 4 s, for each profile."""

TICK_SECONDS: Final = 1.0


def expected_seconds(layers: int, weight_bytes: int) -> float:
    """Roughly how long one profile takes."""
    return layers * SECONDS_PER_LAYER + weight_bytes / BYTES_PER_SECOND


class BuildClock:
    """Thread-safe; `finish` is called by the builder, `fraction` by whoever reports."""

    def __init__(self, profiles: int, expected: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._profiles = profiles
        self._expected = max(expected, 0.1)
        self._clock = clock
        self._finished = 0
        self._since = clock()

    def finish(self, phase: str) -> None:
        """The builder finished a phase; another profile's estimate is how long this one took."""
        if phase == COMPILING:
            now = self._clock()
            self._finished += 1
            self._expected, self._since = max(now - self._since, 0.1), now

    def fraction(self) -> float:
        """0 to 1, never reaching 1 before all profiles are finished."""
        if self._finished >= self._profiles:
            return 1.0
        within = 1.0 - math.exp(-(self._clock() - self._since) / self._expected)
        return (self._finished + within) / self._profiles


@contextmanager
def ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call `tick` about every second from a thread, until the end or the first `Failure`."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(TICK_SECONDS):
            try:
                tick()
            except Failure:
                return

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
