"""An event loop whose clock jumps: what waits an hour is tested in a millisecond, and in the same order."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jump(selectors.DefaultSelector):
    """Instead of waiting for the next timer, moves the loop's clock to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("deadlock: every task waits, and no timer is set")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual; only for code that does no input and output of its own."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time; what is still running then is cancelled."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)


def now() -> float:
    """Virtual seconds."""
    return asyncio.get_running_loop().time()
