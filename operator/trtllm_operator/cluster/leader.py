"""One operator works at a time: the holder of a Lease.

All waiting is measured on the monotonic clock: a Lease's timestamps are another machine's time of day, so a
holder counts as dead when its Lease has not *changed* for the lease duration, as seen from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from ..reconcile.store import Object
from .errors import ClusterError, Conflict
from .events import micro_time
from .kinds import KINDS

logger = logging.getLogger(__name__)

# The values of client-go's leader election, and the bounds between them: a holder gives up (deadline) before
# anybody else may take over (duration), and tries often enough (retry) to survive a few lost requests.
LEASE_DURATION: Final = 15.0
RENEW_DEADLINE: Final = 10.0
RETRY_PERIOD: Final = 2.0
REQUEST_LIMIT: Final = RENEW_DEADLINE / 2
"""Seconds for one renewal, so that a single request that hangs does not cost the Lease."""


class LeadershipLost(Exception):
    """The Lease could not be renewed in time, or another holds it: stop writing, end the process."""


class Leases(Protocol):
    """What is needed of the cluster; `Client` has it."""

    async def get(self, kind: str, namespace: str, name: str) -> Object | None: ...
    async def create(self, manifest: Object) -> Object | None: ...
    async def update(self, obj: Object) -> Object: ...


class Leader:
    """This process' part in the election. `identity` must be unique among all processes."""

    def __init__(
        self,
        leases: Leases,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._leases = leases
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._now = now
        self._held: Object | None = None
        self._renewed = 0.0
        self._seen_version = ""
        self._seen_at = 0.0

    @property
    def is_leader(self) -> bool:
        """Whether the Lease is ours for certain, even if this process was stopped for a while a moment ago."""
        return self._held is not None and self._clock() < self._renewed + RENEW_DEADLINE

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        while True:
            asked = self._clock()
            try:
                async with asyncio.timeout(RENEW_DEADLINE):
                    held = await self._try_acquire()
            except (ClusterError, TimeoutError) as error:
                logger.warning("lease %s/%s: %s", self._namespace, self._name, error or type(error).__name__)
                held = None
            if held is not None:
                self._held, self._renewed = held, asked
                logger.info("leading as %s", self._identity)
                return
            await asyncio.sleep(RETRY_PERIOD)

    async def hold(self) -> None:
        """Renew for ever. Raises `LeadershipLost`."""
        while True:
            await asyncio.sleep(min(RETRY_PERIOD, self._left()))
            asked = self._clock()
            try:
                async with asyncio.timeout(min(REQUEST_LIMIT, max(0.0, self._left()))):
                    self._held = await self._renew()
                self._renewed = asked
            except Conflict:
                await self._adopt_own_write()
            except (ClusterError, TimeoutError) as error:
                logger.warning("lease not renewed: %s", error or type(error).__name__)
            if self._left() <= 0:
                self._held = None
                raise LeadershipLost(f"the lease was not renewed for {RENEW_DEADLINE:.0f} s")

    async def release(self) -> None:
        """Let the next one in at once; does nothing if the Lease is not ours."""
        held, self._held = self._held, None
        if held is None:
            return
        spec = held["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time(self._now())}
        try:
            async with asyncio.timeout(RETRY_PERIOD):
                await self._leases.update(held | {"spec": spec})
        except (ClusterError, TimeoutError) as error:
            logger.warning("lease not released: %s", error or type(error).__name__)

    def _left(self) -> float:
        """Seconds until the deadline."""
        return self._renewed + RENEW_DEADLINE - self._clock()

    async def _try_acquire(self) -> Object | None:
        lease = await self._leases.get("Lease", self._namespace, self._name)
        if lease is None:
            return await self._leases.create(self._lease())
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self._clock()
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder and holder != self._identity and self._clock() < self._seen_at + LEASE_DURATION:
            return None
        now = micro_time(self._now())
        taken = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(LEASE_DURATION),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": spec.get("leaseTransitions", 0) + (holder != self._identity),
        }
        try:
            return await self._leases.update(lease | {"spec": taken})
        except Conflict:
            return None

    async def _renew(self) -> Object:
        assert self._held is not None, "hold() follows acquire()"
        spec = self._held["spec"] | {"renewTime": micro_time(self._now())}
        return await self._leases.update(self._held | {"spec": spec})

    async def _adopt_own_write(self) -> None:
        """After a conflict: a renewal whose answer was lost is ours; another holder ends it."""
        try:
            async with asyncio.timeout(max(0.0, self._left())):
                lease = await self._leases.get("Lease", self._namespace, self._name)
        except (ClusterError, TimeoutError):
            return
        holder = "nobody" if lease is None else (lease.get("spec") or {}).get("holderIdentity") or "nobody"
        if holder != self._identity:
            self._held = None
            raise LeadershipLost(f"the lease is held by {holder}")
        self._held = lease

    def _lease(self) -> Object:
        now = micro_time(self._now())
        return {
            "apiVersion": KINDS["Lease"].api_version,
            "kind": "Lease",
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(LEASE_DURATION),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }
