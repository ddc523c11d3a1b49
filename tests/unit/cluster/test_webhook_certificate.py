"""One certificate for leader and standbys; only the leader makes it, and it tells the API server."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from typing import Any

from tests.builders import NOW
from tests.unit.cluster.doubles import ScriptedServer, scripted
from trtllm_operator.cluster.certificate import LIFETIME, Certificate
from trtllm_operator.cluster.client import Client
from trtllm_operator.cluster.webhook_certificate import PREVIOUS, WebhookCertificate

NAMES = ("hook.system.svc", "localhost")


def keeper(client: Client, *, leads: bool, now: datetime = NOW) -> WebhookCertificate:
    return WebhookCertificate(client, namespace="system", service="hook", now=lambda: now, is_leader=lambda: leads)


def secret(certificate: Certificate, previous: bytes = b"") -> dict[str, Any]:
    data = {"tls.crt": certificate.certificate, "tls.key": certificate.key, PREVIOUS: previous}
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    meta = {"name": "hook", "namespace": "system", "resourceVersion": "7"}
    return {"kind": "Secret", "metadata": meta, "type": "kubernetes.io/tls", "data": encoded}


def webhook(bundle: bytes | None = None) -> dict[str, Any]:
    config: dict[str, Any] = {"service": {"name": "hook", "namespace": "system"}}
    if bundle is not None:
        config["caBundle"] = base64.b64encode(bundle).decode()
    return {"metadata": {"name": "hook"}, "webhooks": [{"name": "validate", "clientConfig": config}]}


def bundle_of(server: ScriptedServer) -> bytes:
    request = server.requests[-1]
    assert (request.method, request.path.rsplit("/", 1)[1]) == ("PUT", "hook")
    return base64.b64decode(request.body["webhooks"][0]["clientConfig"]["caBundle"])


async def test_the_leader_makes_what_is_missing_and_introduces_it() -> None:
    async with scripted() as (server, client, _):
        server.fail(404, "NotFound")
        server.answer(201, secret(Certificate.make(NAMES, NOW)))
        server.answer(200, webhook())
        server.answer(200, webhook())
        certificate = keeper(client, leads=True)
        await certificate.look()
        assert certificate.is_loaded
        made = base64.b64decode(server.requests[1].body["data"]["tls.crt"])
        assert bundle_of(server) == made


async def test_a_standby_loads_what_is_there_and_writes_nothing() -> None:
    async with scripted() as (server, client, _):
        server.answer(200, secret(Certificate.make(NAMES, NOW)))
        certificate = keeper(client, leads=False)
        await certificate.look()
        assert certificate.is_loaded
        assert [request.method for request in server.requests] == ["GET"]


async def test_at_rest_nothing_is_written() -> None:
    """I6."""
    good = Certificate.make(NAMES, NOW)
    async with scripted() as (server, client, _):
        server.answer(200, secret(good))
        server.answer(200, webhook(good.certificate))
        await keeper(client, leads=True).look()
        assert [request.method for request in server.requests] == ["GET", "GET"]


async def test_around_a_renewal_the_old_certificate_is_still_trusted() -> None:
    old = Certificate.make(NAMES, NOW)
    async with scripted() as (server, client, _):
        server.answer(200, secret(old))
        server.answer(200, secret(old, previous=old.certificate))
        server.answer(200, webhook(old.certificate))
        server.answer(200, webhook())
        await keeper(client, leads=True, now=NOW + LIFETIME - timedelta(days=30)).look()
        renewed = server.requests[1].body
        assert renewed["metadata"]["resourceVersion"] == "7"
        assert base64.b64decode(renewed["data"][PREVIOUS]) == old.certificate
        assert bundle_of(server) == base64.b64decode(renewed["data"]["tls.crt"]) + old.certificate


async def test_who_was_slower_than_another_leader_reads_theirs_at_the_next_look() -> None:
    theirs = Certificate.make(NAMES, NOW)
    async with scripted() as (server, client, _):
        server.fail(404, "NotFound")
        server.fail(409, "AlreadyExists")
        server.answer(200, webhook())
        certificate = keeper(client, leads=True)
        await certificate.look()
        assert not certificate.is_loaded
        server.answer(200, secret(theirs))
        server.answer(200, webhook(theirs.certificate))
        await certificate.look()
        assert certificate.is_loaded


async def test_without_an_installed_webhook_there_is_nothing_to_tell() -> None:
    async with scripted() as (server, client, _):
        server.answer(200, secret(Certificate.make(NAMES, NOW)))
        server.fail(404, "NotFound")
        certificate = keeper(client, leads=True)
        await certificate.look()
        assert certificate.is_loaded


async def test_a_secret_that_somebody_broke_ends_no_process_and_the_leader_mends_it() -> None:
    good, other = Certificate.make(NAMES, NOW), Certificate.make(NAMES, NOW)
    broken = secret(Certificate(certificate=good.certificate, key=other.key))
    async with scripted() as (server, client, _):
        server.answer(200, broken)
        standby = keeper(client, leads=False)
        await standby.look()
        assert not standby.is_loaded
        server.answer(200, broken)
        server.answer(200, secret(other))
        server.answer(200, webhook())
        server.answer(200, webhook())
        leader = keeper(client, leads=True)
        await leader.look()
        assert leader.is_loaded
        assert server.requests[2].method == "PUT"
