"""Looks at engines and claims: a slot is promised before it is taken, and whoever deletes asks first who is there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.cluster.test_controller import SlowCluster, a_controller
from tests.unit.decide.test_build_slots import builds, three_engines
from tests.unit.decide.test_retention import deleted, look, the_claim
from tests.unit.decide.world import World
from trtllm_operator.reconcile.resync import Listing
from trtllm_operator.reconcile.store import Key

Json = dict[str, Any]


@dataclass
class SlowJobs(SlowCluster):
    """A double of the client: the creation of a Job is answered only when the test lets it."""

    asked: list[str] = field(default_factory=list)

    async def create(self, manifest: Json) -> Json:
        if manifest["kind"] == "Job":
            self.asked.append(manifest["metadata"]["name"])
            await self.answer.wait()
        return self.world.put(manifest)


@dataclass
class Inhabited(SlowCluster):
    """A double of the client: these pods are on nodes of the cluster, and none is the operator's."""

    pods: list[Json] = field(default_factory=list)

    async def list(self, kind: str, namespace: str | None = None) -> Listing:
        assert (kind, namespace) == ("PlacedPod", "default")
        self.listed += 1
        return Listing(self.pods, 0)


async def test_two_engines_never_get_the_same_slot() -> None:
    world = three_engines(builds_per_cluster=1)
    cluster = SlowJobs(world)
    controller = a_controller(world, cluster)
    first = asyncio.create_task(controller.reconcile(Key("LLMEngine", "default", "one")))
    while not cluster.asked:
        await asyncio.sleep(0)
    await controller.reconcile(Key("LLMEngine", "default", "two"))
    assert builds(world) == [] and len(cluster.asked) == 1, "the Job is not in the store yet, and its slot is taken"
    cluster.answer.set()
    await first
    assert builds(world) == cluster.asked


async def test_the_end_of_a_build_wakes_whoever_waits() -> None:
    world = three_engines(builds_per_cluster=1)
    for name in ("one", "two", "three"):
        world.look_at_engine(name)
    controller = a_controller(world, SlowCluster(world))
    (build,) = builds(world)
    woken = {key.name for key in controller.owners(world.get("Job", build))}
    assert woken == {"one", "two", "three"}


def long_unneeded() -> World:
    world = deleted()
    look(world)
    world.later(days=8)
    return world


async def test_a_claim_that_nobody_needs_is_deleted_after_everybodys_pods_were_listed() -> None:
    world = long_unneeded()
    cluster, claim = Inhabited(world), the_claim(world)
    await a_controller(world, cluster).reconcile(Key("PersistentVolumeClaim", "default", claim))
    assert (cluster.deleted, cluster.listed) == ([claim], 1)


@pytest.mark.parametrize("days", [0, 6])
async def test_nobodys_pods_are_listed_before_the_time_is_over(days: int) -> None:
    world = deleted()
    look(world)
    world.later(days=days)
    cluster, claim = Inhabited(world), the_claim(world)
    assert await a_controller(world, cluster).reconcile(Key("PersistentVolumeClaim", "default", claim)) is not None
    assert (cluster.deleted, cluster.listed) == ([], 0)


async def test_i2_a_claim_that_a_foreign_pod_mounts_is_left_and_looked_at_again() -> None:
    world = long_unneeded()
    claim = the_claim(world)
    volume = {"name": "x", "persistentVolumeClaim": {"claimName": claim}}
    theirs = {"kind": "Pod", "metadata": {"name": "theirs", "namespace": "default"}, "spec": {"volumes": [volume]}}
    cluster = Inhabited(world, pods=[theirs])
    after = await a_controller(world, cluster).reconcile(Key("PersistentVolumeClaim", "default", claim))
    assert (cluster.deleted, after) == ([], 600.0)
