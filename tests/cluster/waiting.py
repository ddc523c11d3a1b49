"""Waiting for a condition with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.cluster.errors import HarnessError

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value | None], what: str, seconds: float, interval: float = 0.05) -> Value:
    """The first truthy value of `condition`, polled every `interval` seconds.

    Raises `HarnessError` naming `what` after `seconds`. An error of the condition itself is not caught.
    """
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise HarnessError(f"waited {seconds:g} s for {what}, in vain")
        time.sleep(interval)
