"""The watch against a real API server: what it shows, what it leaves alone, and what only a resync mends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from kubernetes.aio.client import Configuration

from tests.apiserver.manifests import a_deployment, a_job, a_service, a_stateful_set
from tests.cluster.cluster import Cluster
from trtllm_operator.cluster.client import Client
from trtllm_operator.cluster.connection import USER_AGENT
from trtllm_operator.cluster.watch import Watch
from trtllm_operator.reconcile.resync import resync
from trtllm_operator.reconcile.store import Key, Object, Store, uid_of

pytestmark = pytest.mark.apiserver


async def until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Wait for the watch to show something."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.05)


class Seen:
    """A store, and the names that were enqueued, in order."""

    def __init__(self) -> None:
        self.store = Store()
        self.names: list[str] = []

    def enqueue(self, obj: Object) -> None:
        self.names.append(obj["metadata"]["name"])

    def has(self, kind: str, namespace: str, name: str) -> bool:
        return self.store.get(Key(kind, namespace, name)) is not None


@asynccontextmanager
async def watching(
    configuration: Configuration, seen: Seen, kinds: Collection[str], namespaces: Collection[str]
) -> AsyncIterator[Watch]:
    watch = Watch(
        configuration,
        seen.store,
        seen.enqueue,
        kinds=kinds,
        namespaces=namespaces,
        clock=asyncio.get_running_loop().time,
    )
    running = asyncio.create_task(watch.run(started=lambda: None))
    try:
        yield watch
    finally:
        watch.stop()
        await running


async def test_it_shows_our_children_and_nobody_elses(
    client: Client, configuration: Configuration, namespace: str
) -> None:
    seen = Seen()
    await client.create(a_job(namespace, "foreign", labels={}))
    await client.create(a_job(namespace, "before"))
    async with watching(configuration, seen, ["Job"], [namespace]):
        await until(lambda: seen.has("Job", namespace, "before"), "the Job from before the watch")
        await client.create(a_job(namespace, "also-foreign", labels={}))
        await client.create(a_job(namespace, "after"))
        await until(lambda: seen.has("Job", namespace, "after"), "the new Job")
    assert set(seen.names) == {"before", "after"}
    assert "managedFields" not in seen.store.list("Job")[0]["metadata"]


async def test_it_shows_every_deployment_with_or_without_labels(
    cluster: Cluster, configuration: Configuration, namespace: str
) -> None:
    seen = Seen()
    async with watching(configuration, seen, ["LLMDeployment", "LLMEngine"], []):
        cluster.kubectl("apply", "-f", "-", input=json.dumps(a_deployment(namespace)))
        await until(lambda: seen.has("LLMDeployment", namespace, "llama"), "the deployment")


async def test_it_writes_nothing_and_leaves_no_mark(
    client: Client, cluster: Cluster, configuration: Configuration, namespace: str
) -> None:
    seen = Seen()
    manifest = a_deployment(namespace)
    cluster.kubectl("create", "-f", "-", input=json.dumps(manifest))
    since = datetime.now(UTC)
    async with watching(configuration, seen, ["LLMDeployment", "LLMEngine", "Job", "Pod"], [namespace]):
        await until(lambda: seen.has("LLMDeployment", namespace, "llama"), "the deployment")
        cluster.kubectl("label", "llmdeployment", "llama", "-n", namespace, "team=search")
        await until(lambda: seen.names.count("llama") >= 2, "the change")
    assert cluster.writes(since, USER_AGENT) == []
    obj = await client.get("LLMDeployment", namespace, "llama")
    assert obj is not None
    assert "finalizers" not in obj["metadata"]
    assert "annotations" not in obj["metadata"]


async def test_a_deleted_object_goes_and_wakes_its_owner(
    client: Client, configuration: Configuration, namespace: str
) -> None:
    seen = Seen()
    job = await client.create(a_job(namespace))
    assert job is not None
    async with watching(configuration, seen, ["Job"], [namespace]):
        await until(lambda: seen.has("Job", namespace, "build"), "the Job")
        seen.names.clear()
        await client.delete("Job", namespace, "build", uid=uid_of(job))
        await until(lambda: not seen.has("Job", namespace, "build"), "the deletion")
    assert "build" in seen.names


async def test_an_object_whose_label_comes_back_is_seen_again(
    client: Client, cluster: Cluster, configuration: Configuration, namespace: str
) -> None:
    """The selector makes a lost label look like a deletion; the UID stays the same."""
    seen = Seen()
    await client.apply(a_stateful_set(namespace))
    async with watching(configuration, seen, ["StatefulSet"], [namespace]):
        await until(lambda: seen.has("StatefulSet", namespace, "llama-0"), "the StatefulSet")
        cluster.kubectl("label", "statefulset", "llama-0", "-n", namespace, "app.kubernetes.io/managed-by-")
        await until(lambda: not seen.has("StatefulSet", namespace, "llama-0"), "the StatefulSet without our label")
        await client.apply(a_stateful_set(namespace))
        await until(lambda: seen.has("StatefulSet", namespace, "llama-0"), "the StatefulSet with our label")


async def test_it_outlives_a_restart_of_the_api_server(
    client: Client, cluster: Cluster, configuration: Configuration, namespace: str
) -> None:
    seen = Seen()
    await client.create(a_job(namespace, "before"))
    async with watching(configuration, seen, ["Job"], [namespace]) as watch:
        await until(lambda: seen.has("Job", namespace, "before"), "the Job from before")
        await asyncio.to_thread(cluster.restart, "apiserver")
        await client.create(a_job(namespace, "after"))
        await until(lambda: seen.has("Job", namespace, "after"), "the Job from after the restart", 60)
        assert watch.silence < 60


async def test_what_vanished_while_it_was_cut_is_a_ghost_until_the_resync(
    client: Client, configuration: Configuration, namespace: str
) -> None:
    """A new stream starts with a list of what exists, and never says what does not."""
    seen = Seen()
    ghost = await client.create(a_job(namespace, "ghost"))
    assert ghost is not None
    async with watching(configuration, seen, ["Job"], [namespace]):
        await until(lambda: seen.has("Job", namespace, "ghost"), "the Job")
    await client.delete("Job", namespace, "ghost", uid=uid_of(ghost))
    await client.create(a_job(namespace, "witness"))
    async with watching(configuration, seen, ["Job"], [namespace]):
        await until(lambda: seen.has("Job", namespace, "witness"), "the relist")
        assert seen.has("Job", namespace, "ghost")
        seen.names.clear()
        await resync(["Job"], lambda kind: client.list(kind, namespace), seen.store, seen.enqueue)
    assert not seen.has("Job", namespace, "ghost")
    assert seen.names == ["ghost"]


async def test_the_first_resync_fills_an_empty_store(client: Client, namespace: str) -> None:
    seen = Seen()
    await client.create(a_service(namespace))
    assert await resync(["Service"], lambda kind: client.list(kind, namespace), seen.store, seen.enqueue) == 1
    assert await resync(["Service"], lambda kind: client.list(kind, namespace), seen.store, seen.enqueue) == 0
