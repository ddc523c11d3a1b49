"""The serving process: listen at once, load, serve, drain.

Signals. The first TERM (or INT) turns the server unready; it keeps accepting for `drain_seconds`, because endpoints
lag, then closes the listener and finishes what runs. A second one skips the rest of the pause, a third abandons what
runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch

from trtllm_engine.contract import STORE_MOUNT, ExitCode, Progress, ServeRequest, Step
from trtllm_engine.failure import Failure
from trtllm_engine.serve.app import Service
from trtllm_engine.serve.cpus import usable_cpus
from trtllm_engine.serve.engine import Engine
from trtllm_engine.serve.follower import serve_pod
from trtllm_engine.serve.generation import EngineDead
from trtllm_engine.serve.group import Group
from trtllm_engine.serve.health import Phase
from trtllm_engine.serve.http_edge import log_line
from trtllm_engine.serve.listener import Listener, listening
from trtllm_engine.serve.load import Loaded, Loader, load_engine, warm_up
from trtllm_engine.serve.placement import Placement, read_placement

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

END_SECONDS: Final = 8.0
"""How long a process whose group broke may take to say so: a computation that waits for the lost rank never ends."""


def serve(request: ServeRequest, *, store: Path = Path(STORE_MOUNT), load: Loader = load_engine) -> int:
    """Serve until told to stop; returns the process's exit code, DONE.

    A model of several ranks is served by its replica group together: the environment says which of them this pod holds
    (`placement.py`); the process here is the first of them, and `load` is for engines of one rank.

    Raises `Failure`: what loading the engine raises, or TRY_AGAIN after a step that failed or a rank that was lost. To
    be called in the main thread, as the last thing that a process does: afterwards it ignores the signals.
    """
    placement = read_placement(request.mapping, os.environ)
    torch.set_num_threads(max(1, usable_cpus() // placement.ranks_per_pod))
    try:
        if placement.leads:
            asyncio.run(_Server(request, store, load, placement).run())
        else:
            serve_pod(request, store, placement)
    finally:
        for number in SIGNALS:  # all is said; one more must not turn the exit code into "killed"
            signal.signal(number, signal.SIG_IGN)
    return int(ExitCode.DONE)


class _Stopped(Exception):
    """Loading was interrupted by a signal."""


class _Server:
    """The life of one process, as one coroutine."""

    def __init__(self, request: ServeRequest, store: Path, load: Loader, placement: Placement) -> None:
        self._request = request
        self._store = store
        self._load = load
        self._placement = placement
        self._service = Service(request.model_name)
        self._signals = 0
        self._stop, self._hurry, self._broken = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._failure: Failure | None = None
        """Why the group is no more; set together with `_broken`."""
        self._group: Group | None = None
        self._listener: Listener | None = None

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()

        def on_signal(number: int, frame: FrameType | None) -> None:
            self._call(self._on_signal)

        for number in SIGNALS:
            signal.signal(number, on_signal)
        done = False
        try:
            async with listening(self._service, self._request.port) as (self._listener, answering):
                try:
                    if self._placement.world_size > 1:
                        self._group = Group(self._request, self._store, self._placement, self._lost, self._left)
                    await self._load_and_serve(answering)
                except Failure as failure:
                    self._fail(failure.message)
                    raise
            done = True
        finally:
            if self._group:
                await asyncio.to_thread(self._group.close, done=done)
            log_line("stopped", {"signals": self._signals})

    async def _load_and_serve(self, answering: asyncio.Task[None]) -> None:
        loading = self._start_loading()
        await _first(self._broken, loading)
        if self._failure:
            loading.cancel()
            raise self._failure
        with contextlib.suppress(_Stopped):
            await self._serve(await loading, answering)

    async def _serve(self, loaded: Loaded, answering: asyncio.Task[None]) -> None:
        service, runtime = self._service, loaded.runtime
        engine = Engine(runtime, loaded.tokenizer.decode, loaded.end_tokens, service.metrics)
        stepping = asyncio.create_task(engine.run())
        service.start(engine, loaded.tokenizer, loaded.end_tokens)
        self._announce(ready=True)
        log_line("ready", {"runtime": runtime.name, "slots": runtime.max_batch_size, "context": runtime.max_seq_len})

        await _first(self._stop, stepping)
        if not stepping.done() and not self._failure:
            service.health.phase = Phase.DRAINING
            self._announce(ready=False)
            log_line("draining", {"seconds": self._request.drain_seconds, "requests": engine.live})
            await _first(self._hurry, stepping, timeout=self._request.drain_seconds)
        if stepping.done():
            self._fail(str(stepping.exception()))
        assert self._listener is not None
        self._listener.should_exit = True
        await _first(self._broken, answering)
        stepping.cancel()
        try:
            if self._failure:
                raise self._failure
            await stepping
        except asyncio.CancelledError:
            pass
        except EngineDead as error:
            raise Failure(ExitCode.TRY_AGAIN, str(error)) from error

    def _start_loading(self) -> asyncio.Future[Loaded]:
        """In a thread that nobody waits for: a library that is at work must not keep a broken group from ending."""
        loading: asyncio.Future[Loaded] = self._loop.create_future()

        def settle(loaded: Loaded | None, error: BaseException | None) -> None:
            if loading.cancelled():
                return
            if loaded is None:
                loading.set_exception(error or AssertionError("loading gave nothing"))
            else:
                loading.set_result(loaded)

        def target() -> None:
            loaded: Loaded | None = None
            error: BaseException | None = None
            try:
                loaded = self._loaded()
            except BaseException as raised:
                error = raised
            self._call(lambda: settle(loaded, error))

        threading.Thread(target=target, name="loading", daemon=True).start()
        return loading

    def _loaded(self) -> Loaded:
        report = self._report
        loaded = self._group.load(report) if self._group else self._load(self._request, self._store, report)
        self._report(100.0, "warm-up")
        warm_up(loaded.runtime)
        return loaded

    def _report(self, percent: float, detail: str) -> None:
        """One progress line per whole percent at most; called by the loading thread."""
        if self._signals:
            raise _Stopped
        if self._failure:
            raise self._failure
        health = self._service.health
        if int(percent) > int(health.percent) or not health.detail:
            print(Progress(ts=_now(), step=Step.WEIGHTS, percent=percent, detail=detail).to_json(), flush=True)
        health.percent, health.detail = max(percent, health.percent), detail

    def _announce(self, *, ready: bool) -> None:
        if self._group:
            self._group.announce(ready)

    def _fail(self, message: str) -> None:
        self._service.health.phase, self._service.health.detail = Phase.FAILED, message
        log_line("failed", {"message": message})

    def _on_signal(self) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals >= 2:
            self._hurry.set()
        if self._signals >= 3 and self._listener:
            self._listener.force_exit = True

    def _left(self, rank: int) -> None:
        """Another pod of the group was told to stop: that ends the group as a signal here would."""
        log_line("leaving", {"rank": rank})
        self._call(self._on_signal)

    def _lost(self, failure: Failure) -> None:
        """The group broke: nothing that runs can be finished. Called by a thread of the group's."""
        end = threading.Timer(END_SECONDS, os._exit, [int(failure.code)])
        end.daemon = True
        end.start()
        self._failure = failure

        def stop() -> None:
            self._service.health.phase = Phase.FAILED
            for event in (self._broken, self._stop, self._hurry):
                event.set()
            if self._listener:
                self._listener.force_exit = True

        self._call(stop)

    def _call(self, what: Callable[[], None]) -> None:
        """On the event loop, from anywhere."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is left to stop
            self._loop.call_soon_threadsafe(what)


async def _first(event: asyncio.Event, task: asyncio.Future[Any], timeout: float | None = None) -> None:
    """Return when the event is set, the other is done, or `timeout` seconds are over; the other goes on."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait((waiting, task), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
