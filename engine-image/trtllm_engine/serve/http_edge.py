"""What every request passes on its way in and out: size limit, common headers, access log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""Several times the longest context as text; more can only be a mistake, and would be held in memory."""

QUIET_PATHS: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Asked every few seconds; not logged."""

SUMMARY: Final = "trtllm.summary"
"""Key of the request's `Summary` in the ASGI scope."""


@dataclass(slots=True)
class Summary:
    """What an endpoint tells the access log; numbers and ids, never text of a prompt or an answer."""

    id: str | None = None
    stream: bool | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None


def log_line(event: str, fields: Mapping[str, str | int | float | bool | None]) -> None:
    """One JSON object on standard error; None is left out."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"ts": now, "event": event} | {key: value for key, value in fields.items() if value is not None}
    print(json.dumps(line), file=sys.stderr, flush=True)


class HttpEdge:
    """ASGI middleware. `headers` is asked per response, so that it can follow the state of the process."""

    def __init__(self, app: ASGIApp, headers: Callable[[], Mapping[str, str]]) -> None:
        self._app = app
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        summary = scope[SUMMARY] = Summary()
        status = 0
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, f"the request's body is larger than {MAX_BODY_BYTES} bytes")
            return message

        async def decorated(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(self._headers())
            await send(message)

        try:
            await self._app(scope, limited, decorated)
        finally:
            if scope["path"] not in QUIET_PATHS:
                log_line(
                    "request",
                    {
                        "method": scope["method"],
                        "path": scope["path"][:200],
                        "status": status or None,
                        "seconds": round(time.monotonic() - started, 4),
                        "id": summary.id,
                        "stream": summary.stream,
                        "promptTokens": summary.prompt_tokens,
                        "completionTokens": summary.completion_tokens,
                        "finishReason": summary.finish_reason,
                    },
                )
