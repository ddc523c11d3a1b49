"""The small HTTP server for the kubelet and for Prometheus: /livez, /readyz, /metrics.

It runs in the event loop that does the work, so a loop that is blocked answers nothing and is restarted.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from .metrics import Metrics

Verdict = Callable[[], str | None]
"""What is wrong, or None."""


class Probes:
    """Answers on `address` (`host:port`; without a host on all addresses, port 0 for a free one)."""

    def __init__(self, address: str, *, metrics: Metrics, live: Verdict, ready: Verdict) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._metrics = metrics
        self._live = live
        self._ready = ready
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/livez", self._answer_live)
        app.router.add_get("/readyz", self._answer_ready)
        app.router.add_get("/metrics", self._answer_metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host or None, self._port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._runner is not None, "port follows start()"
        return int(self._runner.addresses[0][1])

    async def _answer_live(self, request: web.Request) -> web.Response:
        return _verdict(self._live())

    async def _answer_ready(self, request: web.Request) -> web.Response:
        return _verdict(self._ready())

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


def _verdict(problem: str | None) -> web.Response:
    return web.Response(text="ok\n") if problem is None else web.Response(text=problem + "\n", status=503)
