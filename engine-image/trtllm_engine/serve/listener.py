"""The pod's port: opened at once, closed when the server says so."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Final

import uvicorn

from trtllm_engine.serve.app import Service, create_app
from trtllm_engine.serve.http_edge import log_line

KEEP_ALIVE_SECONDS: Final = 75
"""Longer than the idle timeout of common proxies (60 s), so that it is not we who close a connection in use."""


class Listener(uvicorn.Server):
    """uvicorn without its signal handlers: when to close the listener is decided elsewhere."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def listening(service: Service, port: int) -> AsyncIterator[tuple[Listener, asyncio.Task[None]]]:
    """Answer on the port. At the end, or when the listener's `should_exit` is set, it closes and finishes what runs."""
    config = uvicorn.Config(
        create_app(service),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    address = open_port(port)
    listener = Listener(config)
    running = asyncio.create_task(listener.serve(sockets=[address]))
    log_line("listening", {"port": address.getsockname()[1]})
    try:
        yield listener, running
    finally:
        listener.should_exit = True
        await running


def open_port(port: int) -> socket.socket:
    """All addresses of the pod, IPv6 ones too where there are any; port 0 takes a free one."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)
