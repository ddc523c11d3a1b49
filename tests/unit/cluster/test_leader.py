"""The election: one leader at a time, a fast change-over, and no trust in anybody's time of day."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from tests.unit.reconcile.virtual_time import now, run
from trtllm_operator.cluster.errors import Conflict, Unreachable
from trtllm_operator.cluster.leader import Leader, LeadershipLost
from trtllm_operator.reconcile.store import Object

WRONG_CLOCK = datetime(1999, 12, 31, tzinfo=UTC)
"""What a machine believes whose time of day is wrong; the election must not care."""


class FakeLeases:
    """Stands in for the API server: one Lease, optimistic locking, and outages on demand."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.away = False
        self.loses_answers = False
        self.hangs = False
        self.version = 0

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        self._answer()
        return self.lease

    async def create(self, manifest: Object) -> Object | None:
        self._answer()
        if self.lease is not None:
            return None
        return self._keep(manifest)

    async def update(self, obj: Object) -> Object:
        if self.away:
            raise Unreachable("update lease: no answer")
        if self.hangs:
            self.hangs = False
            await asyncio.sleep(30)
        assert self.lease is not None
        if obj["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("update lease", 409, "Conflict", "the object has been modified")
        kept = self._keep(obj)
        if self.loses_answers:
            raise Unreachable("update lease: no answer")
        return kept

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"]["holderIdentity"])

    def _answer(self) -> None:
        if self.away:
            raise Unreachable("no answer")

    def _keep(self, obj: Object) -> Object:
        self.version += 1
        self.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        return self.lease


def a_leader(leases: FakeLeases, identity: str) -> Leader:
    return Leader(leases, namespace="ops", name="lease", identity=identity, clock=now, now=lambda: WRONG_CLOCK)


def test_the_first_one_leads_at_once() -> None:
    async def scenario() -> tuple[bool, str]:
        leases = FakeLeases()
        leader = a_leader(leases, "one")
        await leader.acquire()
        return leader.is_leader, leases.holder

    assert run(scenario()) == (True, "one")


def test_a_second_one_waits_as_long_as_the_first_renews() -> None:
    async def scenario() -> bool:
        leases = FakeLeases()
        one, two = a_leader(leases, "one"), a_leader(leases, "two")
        await one.acquire()
        holding = asyncio.create_task(one.hold())
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(3_600)
        holding.cancel()
        waiting.cancel()
        return one.is_leader and not two.is_leader and leases.holder == "one"

    assert run(scenario())


def test_a_dead_leader_is_followed_after_the_lease_duration() -> None:
    async def scenario() -> float:
        leases = FakeLeases()
        await a_leader(leases, "one").acquire()
        start = now()
        await a_leader(leases, "two").acquire()
        return now() - start

    assert 15 <= run(scenario()) <= 17.1


def test_a_leader_that_leaves_in_order_is_followed_at_the_next_try() -> None:
    async def scenario() -> float:
        leases = FakeLeases()
        one, two = a_leader(leases, "one"), a_leader(leases, "two")
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(1)
        await one.release()
        start = now()
        await waiting
        assert not one.is_leader
        return now() - start

    assert run(scenario()) <= 2


def test_a_leader_that_cannot_renew_gives_up_before_another_may_take_over() -> None:
    async def scenario() -> tuple[float, float]:
        leases = FakeLeases()
        one, two = a_leader(leases, "one"), a_leader(leases, "two")
        await one.acquire()
        start = now()
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(0.1)
        leases.away = True
        with pytest.raises(LeadershipLost, match="not renewed for 10 s"):
            await one.hold()
        lost = now() - start
        assert not one.is_leader
        leases.away = False
        await waiting
        return lost, now() - start

    lost, taken = run(scenario())
    assert lost == pytest.approx(10)
    assert taken >= 15


def test_a_short_outage_costs_nothing() -> None:
    async def scenario() -> bool:
        leases = FakeLeases()
        leader = a_leader(leases, "one")
        await leader.acquire()
        holding = asyncio.create_task(leader.hold())
        for away in (True, False):
            leases.away = away
            await asyncio.sleep(7)
        holding.cancel()
        return leader.is_leader

    assert run(scenario())


def test_one_request_that_hangs_does_not_cost_the_lease() -> None:
    async def scenario() -> bool:
        leases = FakeLeases()
        leader = a_leader(leases, "one")
        await leader.acquire()
        leases.hangs = True
        holding = asyncio.create_task(leader.hold())
        await asyncio.sleep(60)
        holding.cancel()
        return leader.is_leader

    assert run(scenario())


def test_a_renewal_whose_answer_was_lost_is_still_ours() -> None:
    """The write landed, so the next one conflicts with it: the holder is read, and it is us."""

    async def scenario() -> bool:
        leases = FakeLeases()
        leader = a_leader(leases, "one")
        await leader.acquire()
        holding = asyncio.create_task(leader.hold())
        leases.loses_answers = True
        await asyncio.sleep(3)
        leases.loses_answers = False
        await asyncio.sleep(60)
        holding.cancel()
        return leader.is_leader

    assert run(scenario())


def test_a_lease_that_another_took_is_lost_at_once() -> None:
    async def scenario() -> None:
        leases = FakeLeases()
        leader = a_leader(leases, "one")
        await leader.acquire()
        assert leases.lease is not None
        await leases.update(leases.lease | {"spec": leases.lease["spec"] | {"holderIdentity": "thief"}})
        with pytest.raises(LeadershipLost, match="held by thief"):
            await leader.hold()
        assert not leader.is_leader

    run(scenario())


def test_a_process_that_was_stopped_for_a_while_knows_that_it_leads_no_more() -> None:
    """No task ran meanwhile, so nothing noticed; the clock did."""

    async def scenario() -> tuple[bool, bool]:
        leader = a_leader(FakeLeases(), "one")
        await leader.acquire()
        before = leader.is_leader
        await asyncio.sleep(11)
        return before, leader.is_leader

    assert run(scenario()) == (True, False)


def test_releasing_what_is_not_ours_changes_nothing() -> None:
    async def scenario() -> str:
        leases = FakeLeases()
        await a_leader(leases, "one").acquire()
        await a_leader(leases, "two").release()
        return leases.holder

    assert run(scenario()) == "one"
