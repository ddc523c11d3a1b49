"""Which keys need a look, and when.

A key is pending at most once, at the earliest time that anybody asked for, and is never handed to two workers
at once: what is asked for while a key is in work is pending until that work is done. Keys are served in the
order of their times, so none starves.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from typing import Final

from .store import Key

FIRST_BACKOFF: Final = 1.0
"""Seconds before the first retry, before jitter takes up to half of it away."""
LAST_BACKOFF: Final = 300.0
"""Seconds; retries never wait longer."""


class Queue:
    """Pending keys. `clock` gives monotonic seconds, `random` a number in [0, 1) for the jitter.

    `observe` is told for every key that is handed out how long it was due.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        random: Callable[[], float],
        observe: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._clock = clock
        self._random = random
        self._observe = observe
        self._sequence = 0
        self._pending: dict[Key, tuple[float, int]] = {}
        # Holds (due, sequence, key); an entry that differs from `_pending[key]` was overtaken and is skipped.
        # A pending key that is in flight has no entry: `done` files it.
        self._heap: list[tuple[float, int, Key]] = []
        self._in_flight: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def add(self, key: Key, *, after: float = 0.0) -> None:
        """Ask for a look at `key`, `after` seconds from now; of several wishes the earliest counts."""
        due = self._clock() + max(after, 0.0)
        known = self._pending.get(key)
        if known is not None and known[0] <= due:
            return
        self._sequence += 1
        self._pending[key] = (due, self._sequence)
        if key not in self._in_flight:
            self._file(key)

    def take(self) -> Key | None:
        """A key that is due, now in flight; None if there is none at this moment."""
        while self._heap and self._heap[0][0] <= self._clock():
            due, sequence, key = heapq.heappop(self._heap)
            if self._pending.get(key) == (due, sequence):
                del self._pending[key]
                self._in_flight.add(key)
                self._observe(self._clock() - due)
                return key
        return None

    async def get(self) -> Key | None:
        """The next key as soon as one is due; None once the queue is closed."""
        while not self._closed:
            if (key := self.take()) is not None:
                return key
            await self._wait()
        return None

    def done(self, key: Key) -> None:
        """End the work on `key`; whatever was asked for meanwhile becomes available."""
        self._in_flight.discard(key)
        if key in self._pending:
            self._file(key)

    def fail(self, key: Key) -> float:
        """End the work on `key` and try again later; returns after how many seconds.

        The wait doubles with every failure in a row; an event in between brings the look forward.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # The exponent is bounded because a float overflows after a thousand failures.
        after = min(LAST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(failures, 32)) * (0.5 + 0.5 * self._random())
        self.add(key, after=after)
        self.done(key)
        return after

    def forget(self, key: Key) -> None:
        """Start counting failures anew: the work succeeded."""
        self._failures.pop(key, None)

    def close(self) -> None:
        """Hand out nothing more; workers that wait are told."""
        self._closed = True
        self._notify()

    @property
    def in_flight(self) -> int:
        """Keys in work."""
        return len(self._in_flight)

    @property
    def ready(self) -> int:
        """Keys that could be in work now: due, and not in flight."""
        now = self._clock()
        return sum(due <= now for key, (due, _) in self._pending.items() if key not in self._in_flight)

    @property
    def failing(self) -> int:
        """Keys whose last look failed."""
        return len(self._failures)

    @property
    def is_drained(self) -> bool:
        """Invariant I7: nothing is due, in work or failing. Looks planned for later do not count."""
        now = self._clock()
        return not self._in_flight and not self._failures and all(due > now for due, _ in self._pending.values())

    def _file(self, key: Key) -> None:
        due, sequence = self._pending[key]
        heapq.heappush(self._heap, (due, sequence, key))
        self._notify()

    def _notify(self) -> None:
        # Everyone wakes and looks again: a worker that leaves with a key may have been the one with the earliest alarm.
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self) -> None:
        """Until something changes or the next key is due."""
        changed = self._changed
        due = self._heap[0][0] if self._heap else math.inf
        try:
            async with asyncio.timeout(None if math.isinf(due) else max(0.0, due - self._clock())):
                await changed.wait()
        except TimeoutError:
            return
