"""The executor writes only what differs, only to what is ours, and never on the word of an old picture (I5, I9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.cluster.doubles import scripted
from trtllm_operator.api.conditions import Reason
from trtllm_operator.api.names import MANAGED_BY, MANAGER
from trtllm_operator.cluster.executor import Executor
from trtllm_operator.decide.plan import Apply, Course, Create, Delete
from trtllm_operator.reconcile.store import Key, Store

KEY = Key("Service", "default", "chat")
Json = dict[str, Any]


def a_service(owner: str | None = "our-uid", *, uid: str = "", version: int = 0, port: int = 8000, **meta: Any) -> Json:
    """The Service `chat`; with a uid as the API server stores it, without as we would send it."""
    references = [{"kind": "LLMDeployment", "name": "chat", "uid": owner, "controller": True}] if owner else []
    metadata = {"name": "chat", "namespace": "default", "labels": {MANAGED_BY: MANAGER}, "ownerReferences": references}
    stored = {"uid": uid, "resourceVersion": str(version)} if uid else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata | stored | meta,
        "spec": {"ports": [{"port": port}]},
    }


async def test_what_does_not_differ_costs_no_request() -> None:
    async with scripted() as (server, client, _):
        store = Store()
        store.put(a_service(uid="u", version=5))
        assert await Executor(client, store, lambda obj: None).execute([Apply(manifest=a_service(), reason="")]) is None
        assert server.requests == []


async def test_what_differs_is_applied_and_everybody_concerned_is_asked() -> None:
    async with scripted() as (server, client, _):
        store = Store()
        asked: list[Json] = []
        store.put(a_service(uid="u", version=5, port=1))
        server.answer(200, a_service(uid="u", version=6))
        await Executor(client, store, asked.append).execute([Apply(manifest=a_service(), reason="")])
        assert [request.method for request in server.requests] == ["PATCH"]
        assert [obj["metadata"]["resourceVersion"] for obj in asked] == ["6"]


async def test_i9_an_object_without_our_owner_is_refused_and_not_written() -> None:
    async with scripted() as (server, client, _):
        server.answer(200, a_service(None, uid="theirs", version=5, labels={}))
        refusal = await Executor(client, Store(), lambda obj: None).execute([Apply(manifest=a_service(), reason="")])
        assert refusal is not None and refusal.verdict.reason == Reason.NAME_CONFLICT
        assert [request.method for request in server.requests] == ["GET"]


async def test_a_child_of_a_deleted_namesake_is_waited_for() -> None:
    async with scripted() as (server, client, _):
        server.answer(200, a_service("old-uid", uid="old", version=5))
        refusal = await Executor(client, Store(), lambda obj: None).execute([Apply(manifest=a_service(), reason="")])
        assert refusal is not None
        assert (refusal.verdict.course, refusal.verdict.reason) == (Course.MOVING, Reason.DELETING)


async def test_the_store_is_not_believed_about_a_namesakes_child_that_is_gone() -> None:
    """Kinds that are not watched stay in the store until the next resync."""
    async with scripted() as (server, client, _):
        store = Store()
        store.put(a_service("old-uid", uid="old", version=5))
        server.fail(404, "NotFound")
        server.answer(201, a_service(uid="new", version=9))
        assert (
            await Executor(client, store, lambda obj: None).execute([Create(manifest=a_service(), reason="")]) is None
        )
        assert [request.method for request in server.requests] == ["GET", "POST"]
        known = store.get(KEY)
        assert known is not None and known["metadata"]["uid"] == "new"


async def test_nothing_is_deleted_when_the_fresh_read_shows_another_object() -> None:
    async with scripted() as (server, client, _):
        manifest = {"apiVersion": "batch/v1", "kind": "Job"}
        server.answer(200, a_service(uid="younger", version=9) | manifest)
        job = Delete(api_version="batch/v1", kind="Job", namespace="default", name="chat", uid="u", owner_uid="our-uid")
        await Executor(client, Store(), lambda obj: None).execute([job])
        assert [request.method for request in server.requests] == ["GET"]


async def test_a_namespace_that_is_being_deleted_is_no_error() -> None:
    async with scripted() as (server, client, _):
        server.fail(404, "NotFound")
        server.fail(403, "Forbidden", causes=[{"reason": "NamespaceTerminating", "message": "", "field": ""}])
        refusal = await Executor(client, Store(), lambda obj: None).execute([Create(manifest=a_service(), reason="")])
        assert refusal is not None and refusal.verdict.reason == Reason.DELETING


async def test_a_quota_is_a_wait_and_ends_the_plan() -> None:
    async with scripted() as (server, client, _):
        server.fail(404, "NotFound")
        server.fail(403, "Forbidden", "exceeded quota: none, requested: count/services=1")
        create = Create(manifest=a_service(), reason="")
        refusal = await Executor(client, Store(), lambda obj: None).execute([create, create])
        assert refusal is not None
        assert (refusal.verdict.course, refusal.verdict.reason) == (Course.MOVING, Reason.WAITING_FOR_QUOTA)
        assert len(server.requests) == 2, "later actions rest on earlier ones"


async def test_what_is_forbidden_is_quoted_and_tried_again() -> None:
    """A right that is missing, or a policy of somebody else's: the reader of the status sees which."""
    async with scripted() as (server, client, _):
        words = 'services is forbidden: User "operator" cannot create resource "services" in API group ""'
        server.fail(404, "NotFound")
        server.fail(403, "Forbidden", words)
        refusal = await Executor(client, Store(), lambda obj: None).execute([Create(manifest=a_service(), reason="")])
        assert refusal is not None
        assert (refusal.verdict.course, refusal.verdict.reason) == (Course.STALLED, Reason.FORBIDDEN)
        assert words in refusal.verdict.message


def a_lost_pod() -> tuple[Json, Delete]:
    reference = {"kind": "StatefulSet", "name": "chat-0", "uid": "set-uid", "controller": True}
    meta = {
        "name": "chat-0-0",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "9",
        "ownerReferences": [reference],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta | {"deletionTimestamp": "2026-01-02T14:00:00Z"}}
    delete = Delete(
        api_version="v1", kind="Pod", namespace="default", name="chat-0-0", uid="u", owner_uid="set-uid", force=True
    )
    return pod, delete


async def test_a_pod_on_a_lost_node_is_deleted_without_grace_also_when_it_is_leaving_already() -> None:
    pod, delete = a_lost_pod()
    async with scripted() as (server, client, _):
        server.answer(200, pod)
        server.answer(200, pod)
        assert await Executor(client, Store(), lambda obj: None).execute([delete]) is None
        assert server.requests[-1].method == "DELETE"
        assert server.requests[-1].body["gracePeriodSeconds"] == 0
        assert server.requests[-1].body["preconditions"] == {"uid": "u", "resourceVersion": "9"}


async def test_what_is_not_watched_is_forgotten_when_it_is_deleted() -> None:
    """Or every look until the next resync would ask for it again."""
    _, template = a_lost_pod()
    reference = {"kind": "LLMDeployment", "name": "chat", "uid": "our-uid", "controller": True}
    meta = {
        "name": "chat-1",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "9",
        "ownerReferences": [reference],
    }
    record = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta}
    delete = replace(template, kind="ControllerRevision", name="chat-1", owner_uid="our-uid", force=False)
    async with scripted() as (server, client, _):
        store = Store()
        store.put(record)
        server.answer(200, record)
        server.answer(200, record)
        assert await Executor(client, store, lambda obj: None).execute([delete]) is None
        assert store.list("ControllerRevision") == []
        assert "gracePeriodSeconds" not in server.requests[-1].body
