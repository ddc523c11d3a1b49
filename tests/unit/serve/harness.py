"""A real uvicorn on loopback over an engine, inside the test's event loop, with the official client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import openai
import uvicorn

from trtllm_engine.serve.app import Service, create_app
from trtllm_engine.serve.engine import Engine
from trtllm_engine.serve.listener import Listener
from trtllm_engine.serve.load import Loaded

MODEL = "tiny"


@dataclass(frozen=True)
class Server:
    """What a test needs of a running server. The client does not retry: each answer is seen."""

    service: Service
    engine: Engine
    client: openai.AsyncOpenAI
    http: httpx.AsyncClient

    async def settled(self) -> None:
        """Return when no request is live, within a deadline."""
        async with asyncio.timeout(10):
            while self.engine.live:
                await asyncio.sleep(0.005)

    async def metric(self, name: str) -> float:
        """The value of a sample without labels other than the model's."""
        page = (await self.http.get("/metrics")).text
        (line,) = [line for line in page.splitlines() if line.startswith(f'{name}{{model_name="{MODEL}"}}')]
        return float(line.rpartition(" ")[2])


@contextlib.asynccontextmanager
async def serving(loaded: Loaded, *, max_waiting: int | None = None) -> AsyncIterator[Server]:
    service = Service(MODEL)
    engine = Engine(
        loaded.runtime, loaded.tokenizer.decode, loaded.end_tokens, service.metrics, max_waiting=max_waiting
    )
    service.start(engine, loaded.tokenizer, loaded.end_tokens)
    async with listening(service) as url:
        stepping = asyncio.create_task(engine.run())
        async with (
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=60) as client,
            httpx.AsyncClient(base_url=url, timeout=60) as http,
        ):
            yield Server(service, engine, client, http)
        stepping.cancel()
        await asyncio.wait([stepping])


@contextlib.asynccontextmanager
async def listening(service: Service) -> AsyncIterator[str]:
    """Serve the application on a free port; yields the URL."""
    config = uvicorn.Config(create_app(service), host="127.0.0.1", port=0, log_config=None, lifespan="off")
    server = Listener(config)
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(10):
        while not server.started:
            await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
