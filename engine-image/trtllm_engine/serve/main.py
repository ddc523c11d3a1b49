"""The serving process: listen at once, load, serve, drain.

Signals. The first TERM (or INT) turns the server unready; it keeps accepting for `drain_seconds`, because endpoints
lag, then closes the listener and finishes what runs. A second one skips the rest of the pause, a third abandons what
runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final

import torch
import uvicorn

from trtllm_engine.contract import STORE_MOUNT, ExitCode, Progress, ServeRequest, Step
from trtllm_engine.failure import Failure
from trtllm_engine.serve.app import Service, create_app
from trtllm_engine.serve.cpus import usable_cpus
from trtllm_engine.serve.engine import Engine, EngineDead
from trtllm_engine.serve.health import Phase
from trtllm_engine.serve.http_edge import log_line
from trtllm_engine.serve.load import Loaded, Loader, load_engine, warm_up

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

KEEP_ALIVE_SECONDS: Final = 75
"""Longer than the idle timeout of common proxies (60 s), so that it is not we who close a connection in use."""


def serve(request: ServeRequest, *, store: Path = Path(STORE_MOUNT), load: Loader = load_engine) -> int:
    """Serve until told to stop; returns the process's exit code, DONE.

    Raises `Failure`: what loading the engine raises, or TRY_AGAIN after a step that failed. To be called in the main
    thread, as the last thing that a process does: afterwards it ignores the signals.
    """
    torch.set_num_threads(usable_cpus())
    try:
        asyncio.run(_Server(request, store, load).run())
    finally:
        for number in SIGNALS:  # all is said; one more must not turn the exit code into "killed"
            signal.signal(number, signal.SIG_IGN)
    return int(ExitCode.DONE)


class _Stopped(Exception):
    """Loading was interrupted by a signal."""


class Listener(uvicorn.Server):
    """uvicorn without its signal handlers: when to close the listener is decided here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Server:
    """The life of one process, as one coroutine."""

    def __init__(self, request: ServeRequest, store: Path, load: Loader) -> None:
        self._request = request
        self._store = store
        self._load = load
        self._service = Service(request.model_name)
        self._signals = 0
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._listener = Listener(
            uvicorn.Config(
                create_app(self._service),
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
        )

    async def run(self) -> None:
        loop = asyncio.get_running_loop()

        def on_signal(number: int, frame: FrameType | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is left to stop
                loop.call_soon_threadsafe(self._on_signal)

        for number in SIGNALS:
            signal.signal(number, on_signal)
        address = _listen(self._request.port)
        listening = asyncio.create_task(self._listener.serve(sockets=[address]))
        log_line("listening", {"port": address.getsockname()[1]})
        try:
            loaded = await asyncio.to_thread(self._loaded)
            await self._serve(loaded, listening)
        except _Stopped:
            pass
        except Failure as failure:
            self._fail(failure.message)
            raise
        finally:
            self._listener.should_exit = True
            await listening
            log_line("stopped", {"signals": self._signals})

    async def _serve(self, loaded: Loaded, listening: asyncio.Task[None]) -> None:
        service, runtime = self._service, loaded.runtime
        engine = Engine(runtime, loaded.tokenizer.decode, loaded.end_tokens, service.metrics)
        service.engine, service.tokenizer = engine, loaded.tokenizer
        stepping = asyncio.create_task(engine.run())
        service.health.phase = Phase.READY
        log_line("ready", {"runtime": runtime.name, "slots": runtime.max_batch_size, "context": runtime.max_seq_len})

        await _first(self._stop, stepping)
        if not stepping.done():
            service.health.phase = Phase.DRAINING
            log_line("draining", {"seconds": self._request.drain_seconds, "requests": engine.live})
            await _first(self._hurry, stepping, timeout=self._request.drain_seconds)
        if stepping.done():
            self._fail(str(stepping.exception()))
        self._listener.should_exit = True
        await listening
        stepping.cancel()
        try:
            await stepping
        except asyncio.CancelledError:
            pass
        except EngineDead as error:
            raise Failure(ExitCode.TRY_AGAIN, str(error)) from error

    def _loaded(self) -> Loaded:
        loaded = self._load(self._request, self._store, self._report)
        self._report(100.0, "warm-up")
        warm_up(loaded.runtime)
        return loaded

    def _report(self, percent: float, detail: str) -> None:
        """One progress line per whole percent at most; called by the loading thread."""
        if self._signals:
            raise _Stopped
        health = self._service.health
        if int(percent) > int(health.percent) or not health.detail:
            print(Progress(ts=_now(), step=Step.WEIGHTS, percent=percent, detail=detail).to_json(), flush=True)
        health.percent, health.detail = max(percent, health.percent), detail

    def _fail(self, message: str) -> None:
        self._service.health.phase, self._service.health.detail = Phase.FAILED, message
        log_line("failed", {"message": message})

    def _on_signal(self) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals >= 2:
            self._hurry.set()
        if self._signals >= 3:
            self._listener.force_exit = True


def _listen(port: int) -> socket.socket:
    """All addresses of the pod, IPv6 ones too where there are any; port 0 takes a free one."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


async def _first(event: asyncio.Event, task: asyncio.Task[None], timeout: float | None = None) -> None:
    """Return when the event is set, the task is done, or `timeout` seconds are over; the task goes on."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait((waiting, task), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
