"""The client against a real API server: ownership of fields, optimistic locking, exact deletion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from tests.apiserver.manifests import a_deployment, a_job, a_service, a_stateful_set
from tests.cluster.cluster import Cluster
from trtllm_operator.api.names import MANAGER
from trtllm_operator.cluster import client as client_module
from trtllm_operator.cluster.client import Client, Takeover
from trtllm_operator.cluster.errors import ApiError, Conflict
from trtllm_operator.cluster.events import Events
from trtllm_operator.reconcile.store import Object, uid_of, version_of

pytestmark = pytest.mark.apiserver


async def created(client: Client, manifest: Object) -> Object:
    obj = await client.create(manifest)
    assert obj is not None
    return obj


async def test_applying_twice_writes_once(client: Client, namespace: str) -> None:
    first = await client.apply(a_service(namespace))
    second = await client.apply(a_service(namespace))
    assert version_of(first) == version_of(second)


async def test_a_field_that_somebody_scaled_is_set_back_and_told(
    client: Client, cluster: Cluster, namespace: str
) -> None:
    told: list[Takeover] = []

    async def tell(obj: Object, fields: Sequence[Takeover]) -> None:
        told.extend(fields)

    client.on_takeover = tell
    await client.apply(a_stateful_set(namespace))
    cluster.kubectl("patch", "statefulset", "llama-0", "-n", namespace, "-p", '{"spec":{"replicas":3}}')
    mended = await client.apply(a_stateful_set(namespace))
    assert mended["spec"]["replicas"] == 0
    assert told == [Takeover("kubectl-patch", ".spec.replicas")]


async def test_a_field_that_is_not_ours_survives(client: Client, cluster: Cluster, namespace: str) -> None:
    await client.apply(a_stateful_set(namespace))
    cluster.kubectl("annotate", "statefulset", "llama-0", "-n", namespace, "team=search")
    mended = await client.apply(a_stateful_set(namespace, replicas=1))
    assert mended["metadata"]["annotations"] == {"team": "search"}


async def test_a_field_that_we_say_no_longer_goes(client: Client, namespace: str) -> None:
    await client.apply(a_service(namespace, labels={"a": "1", "b": "2"}))
    mended = await client.apply(a_service(namespace, labels={"a": "1"}))
    assert mended["metadata"]["labels"] == {"a": "1"}


async def test_creating_what_exists_changes_nothing(client: Client, namespace: str) -> None:
    service = await created(client, a_service(namespace))
    assert await client.create(a_service(namespace)) is None
    assert await client.get("Service", namespace, "llama") == service


async def test_a_deletion_with_another_uid_touches_nothing(client: Client, namespace: str) -> None:
    await created(client, a_job(namespace))
    with pytest.raises(Conflict):
        await client.delete("Job", namespace, "build", uid="00000000-0000-0000-0000-000000000000")
    assert await client.get("Job", namespace, "build") is not None


async def test_a_deletion_of_another_version_touches_nothing(client: Client, cluster: Cluster, namespace: str) -> None:
    job = await created(client, a_job(namespace))
    cluster.kubectl("label", "job", "build", "-n", namespace, "seen=later")
    with pytest.raises(Conflict):
        await client.delete("Job", namespace, "build", uid=uid_of(job), resource_version=str(version_of(job)))
    assert await client.get("Job", namespace, "build") is not None


async def test_a_deletion_of_what_was_read_succeeds_once(client: Client, namespace: str) -> None:
    job = await created(client, a_job(namespace))
    assert await client.delete("Job", namespace, "build", uid=uid_of(job))
    assert not await client.delete("Job", namespace, "build", uid=uid_of(job))


async def test_a_status_is_written_once_and_changes_no_spec(client: Client, cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("apply", "-f", "-", input=json.dumps(a_deployment(namespace)))
    before = await client.get("LLMDeployment", namespace, "llama")
    assert before is not None
    after = await client.apply_status(before, {"observedGeneration": 1, "phase": "Pending"})
    assert after["status"] == {"observedGeneration": 1, "phase": "Pending"}
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == 1
    again = await client.apply_status(after, {"observedGeneration": 1, "phase": "Pending"})
    assert version_of(again) == version_of(after)


async def test_a_status_field_that_is_said_no_longer_goes(client: Client, cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("apply", "-f", "-", input=json.dumps(a_deployment(namespace)))
    before = await client.get("LLMDeployment", namespace, "llama")
    assert before is not None
    long = await client.apply_status(before, {"observedGeneration": 1, "phase": "Pending", "url": "http://llama"})
    short = await client.apply_status(long, {"observedGeneration": 1, "phase": "Pending"})
    assert "url" not in short["status"]


async def test_a_status_computed_from_an_old_version_is_refused(
    client: Client, cluster: Cluster, namespace: str
) -> None:
    cluster.kubectl("apply", "-f", "-", input=json.dumps(a_deployment(namespace)))
    stale = await client.get("LLMDeployment", namespace, "llama")
    assert stale is not None
    cluster.kubectl("label", "llmdeployment", "llama", "-n", namespace, "edited=meanwhile")
    with pytest.raises(Conflict):
        await client.apply_status(stale, {"observedGeneration": 1, "phase": "Pending"})
    now = await client.get("LLMDeployment", namespace, "llama")
    assert now is not None
    assert "status" not in now


async def test_a_list_holds_only_our_children_page_after_page(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PAGE", 2)
    for number in range(5):
        await created(client, a_job(namespace, f"ours-{number}"))
    await created(client, a_job(namespace, "foreign", labels={}))
    listing = await client.list("Job", namespace)
    assert [job["metadata"]["name"] for job in listing.items] == [f"ours-{number}" for number in range(5)]
    assert {job["kind"] for job in listing.items} == {"Job"}
    assert listing.version >= max(map(version_of, listing.items))


async def test_our_kinds_are_served(client: Client) -> None:
    assert await client.serves("LLMDeployment")
    assert await client.serves("LLMEngine")


async def test_a_log_that_is_not_there_yet_is_an_error_with_its_reason(client: Client, namespace: str) -> None:
    with pytest.raises(ApiError, match="not found"):
        await client.pod_log(namespace, "none", tail_lines=20, limit_bytes=1024)


async def test_an_event_is_accepted_and_shown_by_describe(client: Client, cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("apply", "-f", "-", input=json.dumps(a_deployment(namespace)))
    obj = await client.get("LLMDeployment", namespace, "llama")
    assert obj is not None
    events = Events(client, instance="operator-0", clock=lambda: 0.0, now=lambda: datetime.now(UTC))
    await events.emit(obj, "Warning", "BuildFailed", "rank 1 ran out of memory")
    shown = cluster.kubectl("describe", "llmdeployment", "llama", "-n", namespace).stdout
    assert "BuildFailed" in shown
    assert "rank 1 ran out of memory" in shown


async def test_what_we_own_is_recorded_under_our_name(client: Client, cluster: Cluster, namespace: str) -> None:
    await client.apply(a_stateful_set(namespace))
    shown = cluster.kubectl("get", "statefulset", "llama-0", "-n", namespace, "-o", "json", "--show-managed-fields")
    managers = {entry["manager"] for entry in json.loads(shown.stdout)["metadata"]["managedFields"]}
    assert MANAGER in managers
