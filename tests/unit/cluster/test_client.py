"""The client: what is sent, what is sent again, and what an error answer becomes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.cluster.doubles import scripted
from tests.unit.reconcile.builders import an_object
from trtllm_operator import __version__
from trtllm_operator.api.names import SELECTOR
from trtllm_operator.cluster import client as client_module
from trtllm_operator.cluster.client import Takeover
from trtllm_operator.cluster.errors import ApiError, Conflict, Forbidden, NotLeading, Unreachable
from trtllm_operator.reconcile.store import Object

JOB: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": "default", "name": "build-1"},
    "spec": {"parallelism": 1},
}
SET: Object = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"namespace": "default", "name": "llama-0"},
    "spec": {"replicas": 1},
}
A_LIVE_JOB: Object = JOB | {"metadata": JOB["metadata"] | {"uid": "u1", "resourceVersion": "7"}}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "BACKOFF", (0.0, 0.0, 0.0))


async def test_every_request_says_who_sends_it_and_carries_the_token() -> None:
    async with scripted() as (server, client, _):
        server.answer(200, A_LIVE_JOB)
        await client.get("Job", "default", "build-1")
        (request,) = server.requests
        assert request.headers["User-Agent"] == f"trtllm-operator/{__version__}"
        assert request.headers["Authorization"] == "Bearer secret-token"
        assert request.path == "/apis/batch/v1/namespaces/default/jobs/build-1"


async def test_a_missing_object_is_none() -> None:
    async with scripted() as (server, client, _):
        server.fail(404, "NotFound")
        assert await client.get("Job", "default", "build-1") is None


async def test_an_existing_object_makes_create_none() -> None:
    async with scripted() as (server, client, _):
        server.fail(409, "AlreadyExists")
        assert await client.create(JOB) is None


async def test_another_conflict_of_create_is_an_error() -> None:
    async with scripted() as (server, client, _):
        server.fail(409, "Conflict", "the namespace is going")
        with pytest.raises(Conflict, match="the namespace is going"):
            await client.create(JOB)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_read_is_repeated_when_the_server_is_busy(status: int) -> None:
    async with scripted() as (server, client, metrics):
        server.fail(status, "Busy")
        server.answer(200, A_LIVE_JOB)
        assert await client.get("Job", "default", "build-1") == A_LIVE_JOB
        assert metrics.requests("get", str(status)) == 1
        assert metrics.requests("get", "200") == 1


async def test_a_read_is_repeated_when_the_connection_is_cut() -> None:
    async with scripted() as (server, client, _):
        server.cut()
        server.answer(200, A_LIVE_JOB)
        assert await client.get("Job", "default", "build-1") == A_LIVE_JOB


async def test_it_gives_up_after_four_tries() -> None:
    async with scripted() as (server, client, _):
        for _ in range(5):
            server.fail(500, "InternalError", "etcd is away")
        with pytest.raises(ApiError, match=r"get /apis/batch/v1/.*: 500 InternalError: etcd is away"):
            await client.get("Job", "default", "build-1")
        assert len(server.requests) == 4


async def test_a_creation_that_may_have_happened_is_not_repeated() -> None:
    async with scripted() as (server, client, metrics):
        server.fail(500, "InternalError")
        with pytest.raises(ApiError):
            await client.create(JOB)
        server.cut()
        with pytest.raises(Unreachable):
            await client.create(JOB)
        assert len(server.requests) == 2
        assert metrics.requests("create", "error") == 1


async def test_a_creation_that_was_turned_away_is_repeated() -> None:
    async with scripted() as (server, client, _):
        server.fail(429, "TooManyRequests")
        server.answer(201, A_LIVE_JOB)
        assert await client.create(JOB) == A_LIVE_JOB


async def test_the_server_says_how_long_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("trtllm_operator.cluster.client.asyncio.sleep", note)
    async with scripted() as (server, client, _):
        server.answer(429, Retry_After="7")
        server.answer(503, Retry_After="3600")
        server.answer(200, A_LIVE_JOB)
        await client.get("Job", "default", "build-1")
    assert [pause for pause in pauses if pause > 0] == [7.0, 30.0]


async def test_a_refusal_is_not_repeated_and_keeps_its_words() -> None:
    async with scripted() as (server, client, _):
        server.fail(403, "Forbidden", "exceeded quota: gpus")
        with pytest.raises(Forbidden) as caught:
            await client.apply(SET)
        assert caught.value.message == "exceeded quota: gpus"
        assert len(server.requests) == 1


async def test_apply_takes_fields_from_other_managers_and_tells_which() -> None:
    told: list[Takeover] = []

    async def tell(obj: Object, fields: Sequence[Takeover]) -> None:
        told.extend(fields)

    async with scripted() as (server, client, _):
        client.on_takeover = tell
        cause = {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl-edit" using apps/v1',
            "field": ".spec.replicas",
        }
        server.fail(409, "Conflict", "Apply failed with 1 conflict", [cause])
        server.answer(200, SET)
        await client.apply(SET)
        assert [request.query["force"] for request in server.requests] == ["false", "true"]
    assert told == [Takeover("kubectl-edit", ".spec.replicas")]


async def test_a_conflict_that_force_cannot_solve_is_raised() -> None:
    async with scripted() as (server, client, _):
        server.fail(409, "Conflict", "the object has been modified")
        with pytest.raises(Conflict):
            await client.apply(SET)
        assert len(server.requests) == 1


async def test_a_list_is_read_in_pages_of_one_version_and_names_its_kinds() -> None:
    async with scripted() as (server, client, _):
        bare = {key: value for key, value in A_LIVE_JOB.items() if key not in ("kind", "apiVersion")}
        server.answer(200, {"metadata": {"resourceVersion": "50", "continue": "next"}, "items": [bare]})
        server.answer(200, {"metadata": {"resourceVersion": "50"}, "items": [bare]})
        listing = await client.list("Job")
        assert listing.version == 50
        assert listing.items == [A_LIVE_JOB, A_LIVE_JOB]
        assert [request.query.get("continue") for request in server.requests] == [None, "next"]
        assert {request.query["labelSelector"] for request in server.requests} == {SELECTOR}


async def test_a_list_that_took_too_long_starts_again_in_one_piece() -> None:
    async with scripted() as (server, client, _):
        server.answer(200, {"metadata": {"resourceVersion": "50", "continue": "next"}, "items": [A_LIVE_JOB]})
        server.fail(410, "Expired")
        server.answer(200, {"metadata": {"resourceVersion": "60"}, "items": [A_LIVE_JOB]})
        listing = await client.list("Job")
        assert (len(listing.items), listing.version) == (1, 60)
        assert "limit" not in server.requests[-1].query


async def test_what_no_decision_reads_is_dropped() -> None:
    async with scripted() as (server, client, _):
        server.answer(200, A_LIVE_JOB | {"metadata": A_LIVE_JOB["metadata"] | {"managedFields": [{}]}})
        assert await client.get("Job", "default", "build-1") == A_LIVE_JOB


async def test_a_deletion_names_exactly_one_object() -> None:
    async with scripted() as (server, client, _):
        server.answer(200)
        assert await client.delete(
            "Job", "default", "build-1", uid="u1", resource_version="7", propagation="Foreground"
        )
        (request,) = server.requests
        assert request.body["preconditions"] == {"uid": "u1", "resourceVersion": "7"}
        assert request.body["propagationPolicy"] == "Foreground"


async def test_deleting_what_is_gone_is_no_error() -> None:
    async with scripted() as (server, client, _):
        server.fail(404, "NotFound")
        assert not await client.delete("Job", "default", "build-1", uid="u1")


async def test_an_operator_that_lost_its_lease_sends_no_write() -> None:
    async with scripted() as (server, client, _):
        client.may_write = lambda: False
        with pytest.raises(NotLeading):
            await client.apply(SET)
        with pytest.raises(NotLeading):
            await client.delete("Job", "default", "build-1", uid="u1")
        server.answer(200, A_LIVE_JOB)
        assert await client.get("Job", "default", "build-1") == A_LIVE_JOB
        assert [request.method for request in server.requests] == ["GET"]


async def test_what_the_role_does_not_grant_is_not_even_sent() -> None:
    async with scripted() as (server, client, _):
        with pytest.raises(LookupError, match=r"does not grant patch on pods; it grants delete, get, list, watch"):
            await client.apply(an_object(kind="Pod"))
        with pytest.raises(KeyError):
            await client.get("ConfigMap", "default", "settings")
        assert server.requests == []


async def test_a_proxy_in_between_is_quoted() -> None:
    async with scripted() as (server, client, _):
        server.answer(407, ["<html>proxy"])
        with pytest.raises(ApiError, match="proxy"):
            await client.get("Job", "default", "build-1")
