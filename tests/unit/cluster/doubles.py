"""A stand-in for the API server that answers as a test tells it to, over real HTTP."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from kubernetes.aio.client import Configuration

from trtllm_operator.cluster.client import Client
from trtllm_operator.cluster.metrics import Metrics


@dataclass(frozen=True)
class Request:
    """What arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class ScriptedServer:
    """Gives the queued answers in order: (status, JSON body, headers). None cuts the connection."""

    answers: deque[tuple[int, Any, dict[str, str]] | None] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)

    def answer(self, status: int, body: Any = None, **headers: str) -> None:
        self.answers.append((status, body or {}, {name.replace("_", "-"): text for name, text in headers.items()}))

    def fail(self, status: int, reason: str, message: str = "", causes: list[dict[str, str]] | None = None) -> None:
        body = {"kind": "Status", "reason": reason, "message": message, "details": {"causes": causes or []}}
        self.answers.append((status, body, {}))

    def cut(self) -> None:
        self.answers.append(None)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        self.requests.append(
            Request(
                request.method,
                request.path,
                dict(request.query),
                dict(request.headers),
                json.loads(text) if text else None,
            )
        )
        answer = self.answers.popleft()
        if answer is None:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        status, body, headers = answer
        return web.Response(status=status, text=json.dumps(body), content_type="application/json", headers=headers)


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[ScriptedServer, Client, Metrics]]:
    """A server, and a client that talks to it."""
    server, metrics = ScriptedServer(), Metrics()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    configuration.api_key["BearerToken"] = "Bearer secret-token"
    client = Client(configuration, metrics=metrics)
    try:
        yield server, client, metrics
    finally:
        await client.close()
        await runner.cleanup()
