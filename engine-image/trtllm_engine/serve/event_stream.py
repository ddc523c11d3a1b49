"""Server-sent events from a reply, and noticing that the client left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trtllm_engine.serve.generation import Reply


@contextlib.asynccontextmanager
async def cancelled_on_disconnect(receive: Receive, reply: Reply) -> AsyncIterator[None]:
    """Cancel the reply as soon as the client disconnects, and in any case at the end of the block.

    The request's body must have been read: what `receive` then brings is the disconnect.
    """

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        reply.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        reply.cancel()


class EventStream(Response):
    """Sends each event as it comes. The reply is cancelled when the client leaves, even before the first event."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], reply: Reply) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with cancelled_on_disconnect(receive, self._reply):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in self._events:
                body = f"data: {event}\n\n".encode()
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
