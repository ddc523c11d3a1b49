"""Workers: take a key, reconcile it, say when to look again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from .queue import Queue
from .store import Key

logger = logging.getLogger(__name__)

Reconcile = Callable[[Key], Awaitable[float | None]]
"""Brings the cluster one step closer; returns after how many seconds to look again without an event, or None."""

Observe = Callable[[float, str], None]
"""Told about every look: seconds, and `done`, `retried` (an expected error) or `failed`."""


async def run_workers(
    queue: Queue,
    reconcile: Reconcile,
    *,
    count: int,
    clock: Callable[[], float],
    expected: tuple[type[Exception], ...] = (),
    observe: Observe = lambda seconds, result: None,
) -> None:
    """Run `count` workers until the queue is closed and every key in work is done.

    An exception never ends a worker: its key is tried again later. `expected` are the errors that a busy cluster
    brings with it (conflicts, an API server that restarts); they are logged without a trace.
    """

    async def work() -> None:
        while (key := await queue.get()) is not None:
            observe(*await _look(queue, reconcile, key, clock, expected))

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(work(), name=f"worker {number}")


async def _look(
    queue: Queue, reconcile: Reconcile, key: Key, clock: Callable[[], float], expected: tuple[type[Exception], ...]
) -> tuple[float, str]:
    start = clock()
    try:
        after = await reconcile(key)
    except expected as error:
        delay = queue.fail(key)
        logger.info("%s: %s; trying again in %.1f s", key, error, delay)
        return clock() - start, "retried"
    except Exception:
        delay = queue.fail(key)
        logger.exception("%s: reconciling failed; trying again in %.1f s", key, delay)
        return clock() - start, "failed"
    queue.forget(key)
    if after is not None:
        queue.add(key, after=after)
    queue.done(key)
    return clock() - start, "done"
