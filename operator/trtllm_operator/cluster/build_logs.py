"""What running build and fetch pods say: their last progress line, read every few seconds.

A soft fact for the reader of the status: no decision waits for it, and a log that cannot be read is no failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from trtllm_engine.contract import ContractError, Progress

from ..api.names import ROLE_LABEL
from ..api.views import PodView
from ..reconcile.resync import Enqueue
from ..reconcile.store import Key, Object, Store, key_of
from .errors import ClusterError

logger = logging.getLogger(__name__)

ROLES: Final = ("fetch", "build")
"""Values of the role label whose pods report progress."""
INTERVAL: Final = 3.0
"""Seconds between two rounds."""
TAIL_LINES: Final = 20
LIMIT_BYTES: Final = 16 * 1024
AT_ONCE: Final = 4
"""Logs read at the same time: each goes through the API server to a kubelet."""


class Logs(Protocol):
    """What is needed of the cluster; `Client` has it."""

    async def pod_log(self, namespace: str, name: str, *, tail_lines: int, limit_bytes: int) -> str: ...


async def follow_builds(store: Store, logs: Logs, enqueue: Enqueue) -> None:
    """Read for ever."""
    while True:
        await read_once(store, logs, enqueue)
        await asyncio.sleep(INTERVAL)


async def read_once(store: Store, logs: Logs, enqueue: Enqueue) -> None:
    """One round: read every running pod, and enqueue those that came further."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def read(pod: Object) -> None:
        key = key_of(pod)
        async with gate:
            progress = await _progress(logs, key)
        if progress is not None and _is_news(store.progress(key), progress):
            store.set_progress(key, progress)
            enqueue(pod)

    async with asyncio.TaskGroup() as group:
        for pod in _running(store):
            group.create_task(read(pod))


def last_progress(log: str) -> Progress | None:
    """The last line that is a progress message; other lines, and one cut by the byte limit, are passed over."""
    for line in reversed(log.splitlines()):
        try:
            return Progress.from_json(line)
        except ContractError:
            continue
    return None


def _running(store: Store) -> Iterable[Object]:
    pods = [pod for role in ROLES for pod in store.by_label("Pod", None, ROLE_LABEL, role)]
    return [pod for pod in pods if PodView.of(pod).running_since is not None]


async def _progress(logs: Logs, key: Key) -> Progress | None:
    try:
        log = await logs.pod_log(key.namespace, key.name, tail_lines=TAIL_LINES, limit_bytes=LIMIT_BYTES)
    except ClusterError as error:
        logger.debug("%s: log not read: %s", key, error)
        return None
    return last_progress(log)


def _is_news(before: Progress | None, after: Progress) -> bool:
    """Whole percents: what the reader sees. Every change is a status write."""
    return before is None or (before.step, int(before.percent)) != (after.step, int(after.percent))
