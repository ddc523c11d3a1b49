"""One look after another: what two deployments decide at the same time is decided on different GPUs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from tests.builders import a_deployment_object
from tests.unit.decide.test_deployment import served, the_job
from tests.unit.decide.world import World
from trtllm_operator.api import names
from trtllm_operator.api.deployment import LLMDeployment
from trtllm_operator.cluster.client import Client
from trtllm_operator.cluster.controller import Controller
from trtllm_operator.cluster.events import Events
from trtllm_operator.cluster.metrics import Metrics
from trtllm_operator.cluster.milestone_metrics import Milestones
from trtllm_operator.cluster.snapshots import concerned, gpus
from trtllm_operator.reconcile.resync import Listing
from trtllm_operator.reconcile.store import Key

Json = dict[str, Any]


@dataclass
class SlowCluster:
    """A double of the client over a world: the creation of a group is answered only when the test lets it."""

    world: World
    answer: asyncio.Event = field(default_factory=asyncio.Event)
    made: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    forced: list[str] = field(default_factory=list)
    listed: int = 0

    async def list(self, kind: str) -> Listing:
        assert kind == "PlacedPod"
        self.listed += 1
        return Listing([], 0)

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return self.world.store.get(Key(kind, namespace, name))

    async def apply(self, manifest: Json) -> Json:
        if manifest["kind"] == "StatefulSet":
            self.made.append(manifest["metadata"]["name"])
            await self.answer.wait()
        return self.world.put(manifest)

    async def create(self, manifest: Json) -> Json:
        return self.world.put(manifest)

    async def delete(self, kind: str, namespace: str, name: str, *, force: bool = False, **_: Any) -> bool:
        (self.forced if force else self.deleted).append(name)
        return True

    async def apply_status(self, obj: Json, status: Json) -> Json:
        return self.world.change(obj["kind"], obj["metadata"]["name"], status=status)


@dataclass
class ToldEvents:
    """A double that remembers what was told."""

    told: list[tuple[str, str]] = field(default_factory=list)

    async def emit(self, obj: Json, kind: str, reason: str, message: str) -> None:
        self.told.append((reason, message))


def a_controller(world: World, cluster: SlowCluster, events: ToldEvents | None = None) -> Controller:
    return Controller(
        store=world.store,
        client=cast(Client, cluster),
        events=cast(Events, events or ToldEvents()),
        milestones=Milestones(Metrics()),
        enqueue=lambda obj: None,
        defaults=world.defaults,
        now=lambda: world.now,
    )


def two_that_serve() -> World:
    """`chat` and `other`, one replica each, on one node."""
    world = served()
    world.put(a_deployment_object("other"))
    world.settle("other")
    world.job_succeeds(the_job(world, "other-fetch-"))
    world.settle("other")
    world.group_becomes_ready("other-0")
    world.settle("other")
    return world


async def test_two_deployments_never_count_the_same_free_gpu() -> None:
    world = two_that_serve()
    world.a_node("gpu-a", gpus=3)
    for name in ("chat", "other"):
        world.change("LLMDeployment", name, spec={"serving": {"drainSeconds": 1}})
        world.look_at_deployment(name)
    cluster = SlowCluster(world)
    controller = a_controller(world, cluster)
    first = asyncio.create_task(controller.reconcile(Key("LLMDeployment", "default", "chat")))
    while not cluster.made:
        await asyncio.sleep(0)
    await controller.reconcile(Key("LLMDeployment", "default", "other"))
    assert (cluster.made, cluster.deleted) == (["chat-1"], ["other-0"]), "the free GPU is chat's, so other makes room"
    cluster.answer.set()
    await first
    assert cluster.listed == 1, "what was listed moments ago is good for both"


async def test_pods_are_listed_only_while_the_answer_matters() -> None:
    world = served()
    cluster = SlowCluster(world)
    await a_controller(world, cluster).reconcile(Key("LLMDeployment", "default", "chat"))
    assert (cluster.listed, cluster.made, cluster.deleted) == (0, [], [])


async def test_a_lost_node_is_told_and_its_pods_are_let_go() -> None:
    world = served()
    world.a_node("gpu-a", gpus=8, ready=False)
    world.later(minutes=2)
    cluster, events = SlowCluster(world), ToldEvents()
    await a_controller(world, cluster, events).reconcile(Key("LLMDeployment", "default", "chat"))
    assert cluster.forced == ["chat-0-0"]
    (told,) = [message for reason, message in events.told if reason == "NodeLost"]
    assert told.startswith("Pod chat-0-0: node gpu-a has not been ready since 14:03Z")


async def test_what_is_deleted_while_pods_are_listed_is_left_alone() -> None:
    world = served()
    world.a_node("gpu-a", gpus=1)
    world.change("LLMDeployment", "chat", spec={"serving": {"drainSeconds": 1}})
    world.look_at_deployment("chat")

    class Deleting(SlowCluster):
        async def list(self, kind: str) -> Listing:
            world.change("LLMDeployment", "chat", metadata={"deletionTimestamp": "2026-01-02T14:05:00Z"})
            return Listing([], 0)

    cluster = Deleting(world)
    assert await a_controller(world, cluster).reconcile(Key("LLMDeployment", "default", "chat")) is None
    assert (cluster.made, cluster.deleted) == ([], [])


def test_a_node_that_reports_what_is_known_wakes_nobody() -> None:
    world = two_that_serve()
    world.change("LLMDeployment", "chat", status={"phase": "RollingOut"})
    controller = a_controller(world, SlowCluster(world))
    node = world.store.get(Key("Node", "", "gpu-a"))
    assert node is not None
    assert controller.owners(node) == [Key("LLMDeployment", "default", "chat")]
    assert controller.owners(node) == []
    world.a_node("gpu-a", gpus=16)
    grown = world.store.get(Key("Node", "", "gpu-a"))
    assert grown is not None and controller.owners(grown) == [Key("LLMDeployment", "default", "chat")]


def test_a_pod_of_ours_that_is_gone_is_not_counted_because_an_older_list_shows_it() -> None:
    """Or a group that made room would seem to have made none, and a second one would go."""
    world = served()
    deployment = LLMDeployment.of(world.get("LLMDeployment", "chat"))
    gone = world.get("Pod", "chat-0-0")
    world.remove("Pod", "chat-0-0")
    assert gpus(world.store, deployment, [gone], ()).placed == ()


def test_a_node_concerns_whoever_rolls_out_and_when_it_is_lost_whoever_serves_there() -> None:
    world = two_that_serve()
    for name in ("chat-0-0", "other-0-0"):
        labels = world.get("Pod", name)["metadata"]["labels"]
        assert labels[names.ROLE_LABEL] == "server"
    node = world.store.get(Key("Node", "", "gpu-a"))
    assert node is not None and concerned(world.store, node) == set()
    world.change("LLMDeployment", "chat", status={"phase": "RollingOut"})
    assert concerned(world.store, node) == {Key("LLMDeployment", "default", "chat")}
    world.a_node("gpu-a", gpus=8, ready=False)
    lost = world.store.get(Key("Node", "", "gpu-a"))
    assert lost is not None and len(concerned(world.store, lost)) == 2
