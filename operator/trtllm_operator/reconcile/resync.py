"""The safety net below the watch: list everything, compare by UID, look again at what differs.

A watch loses what happened while it was cut: after a relist it reports what exists, never what vanished.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from .store import Object, Store, key_of, uid_of, version_of

logger = logging.getLogger(__name__)

INTERVAL: Final = 300.0
"""Seconds between two resyncs, before jitter."""
RETRY: Final = 5.0
"""Seconds before a failed resync is tried again."""


class Listing(NamedTuple):
    """A kind's objects, complete as of `version`."""

    items: list[Object]
    version: int


ListKind = Callable[[str], Awaitable[Listing]]
Enqueue = Callable[[Object], None]
"""Asks for a look at every key that a change of this object concerns."""


async def resync(kinds: Iterable[str], list_kind: ListKind, store: Store, enqueue: Enqueue) -> int:
    """Bring the store up to what the API server lists; returns how many objects differed."""
    differences = 0
    for kind in kinds:
        for obj in _differences(kind, await list_kind(kind), store):
            enqueue(obj)
            differences += 1
    return differences


def _differences(kind: str, listing: Listing, store: Store) -> list[Object]:
    """Put what is new, drop what is gone; returns both."""
    before = store.list(kind)
    changed = [obj for obj in listing.items if store.put(obj)]
    listed = {uid_of(obj) for obj in listing.items}
    # What the store knows in a version above the listing's may have been created after the listing was made.
    gone = [obj for obj in before if uid_of(obj) not in listed and version_of(obj) <= listing.version]
    for obj in gone:
        store.delete(key_of(obj), uid_of(obj), listing.version)
    return changed + gone


async def resync_forever(
    once: Callable[[], Awaitable[int]],
    *,
    first: asyncio.Event,
    random: Callable[[], float],
    expected: tuple[type[Exception], ...],
) -> None:
    """Resync now and every few minutes; sets `first` after the first that succeeded.

    `random` gives the jitter, so that many operators do not list in the same second. An `expected` error (an API
    server that is away) is logged and tried again soon; any other ends the task.
    """
    while True:
        try:
            differences = await once()
        except expected as error:
            logger.warning("resync failed: %s; trying again in %.0f s", error, RETRY)
            await asyncio.sleep(RETRY)
            continue
        if first.is_set() and differences:
            logger.info("resync: %d objects differed from what the watch had shown", differences)
        first.set()
        await asyncio.sleep(INTERVAL * (0.9 + 0.2 * random()))
