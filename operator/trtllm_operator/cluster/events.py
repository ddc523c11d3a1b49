"""Events that `kubectl describe` shows below an object: transitions, each told once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from ..api.names import GROUP, MANAGER
from ..reconcile.store import Object
from .client import Client
from .errors import ClusterError
from .kinds import KINDS

logger = logging.getLogger(__name__)

QUIET: Final = 600.0
"""Seconds in which the same words about the same object are not repeated."""
RATE: Final = 10.0
"""Events per second on average; a storm of a thousand failing objects must not become a storm of writes."""
BURST: Final = 50.0
"""Events that may be written at once after a calm."""
NOTE_LIMIT: Final = 1024
"""Bytes of `note` that the API server accepts."""


class Events:
    """Writes Events of events.k8s.io/v1.

    `clock` gives monotonic seconds, `now` the time of day. An Event is a courtesy: one that cannot be written is
    logged and forgotten, and never makes a look fail.
    """

    def __init__(
        self, client: Client, *, instance: str, clock: Callable[[], float], now: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._instance = instance[:128]
        self._clock = clock
        self._now = now
        # In the order in which it was told, so that what is old enough to tell again is in front.
        self._told: dict[tuple[str, str, str], float] = {}
        self._budget = BURST
        self._refilled = clock()

    async def emit(self, obj: Object, kind: str, reason: str, message: str) -> None:
        """Tell about `obj`; `kind` is Normal or Warning. Nothing happens if the same was told within ten minutes."""
        if not self._admit((obj["metadata"]["uid"], reason, message)):
            return
        try:
            await self._client.create_event(self._event(obj, kind, reason, message))
        except ClusterError as error:
            logger.warning("event %s about %s was not written: %s", reason, obj["metadata"]["name"], error)

    def _admit(self, words: tuple[str, str, str]) -> bool:
        """Whether these words are news, and there is budget for them."""
        now = self._clock()
        while self._told and next(iter(self._told.values())) <= now - QUIET:
            del self._told[next(iter(self._told))]
        self._budget = min(BURST, self._budget + (now - self._refilled) * RATE)
        self._refilled = now
        if words in self._told or self._budget < 1.0:
            return False
        self._told[words] = now
        self._budget -= 1.0
        return True

    def _event(self, obj: Object, kind: str, reason: str, message: str) -> Object:
        meta = obj["metadata"]
        namespace = meta.get("namespace", "default")
        now = self._now()
        return {
            "apiVersion": KINDS["Event"].api_version,
            "kind": "Event",
            # The moment makes the name unique, as in the Kubernetes clients.
            "metadata": {"namespace": namespace, "name": f"{meta['name']}.{int(now.timestamp() * 1e6):x}"},
            "eventTime": micro_time(now),
            "type": kind,
            "reason": reason,
            "action": "Reconcile",
            "note": _cut(message),
            "reportingController": f"{GROUP}/{MANAGER}",
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": obj["apiVersion"],
                "kind": obj["kind"],
                "namespace": meta.get("namespace", ""),
                "name": meta["name"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            },
        }


def micro_time(moment: datetime) -> str:
    """A UTC moment as Kubernetes' MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _cut(text: str) -> str:
    data = text.encode()
    return text if len(data) <= NOTE_LIMIT else data[: NOTE_LIMIT - 3].decode(errors="ignore") + "..."
