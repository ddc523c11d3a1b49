"""The life of a serving process: listening at once, ready late, draining without losing anybody."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.unit.serve.harness import MODEL
from tests.unit.serve.serving_process import Running
from trtllm_engine.contract import ExitCode, Progress

DEADLINE = 300
"""Seconds for any one thing to happen; importing torch on a busy machine is the longest."""


@contextlib.asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[Running]:
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.unit.serve.serving_process", *arguments, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(DEADLINE):
            port = (await Running(running, httpx.AsyncClient()).event("listening"))["port"]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as http:
                yield Running(running, http)
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


def body(tokens: int, *, stream: bool = False) -> dict[str, object]:
    return {"model": MODEL, "prompt": "once upon a time", "max_tokens": tokens, "temperature": 0, "stream": stream}


async def test_from_loading_to_a_drain_under_load_no_accepted_request_is_lost(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with process("tiny", str(gate)) as server:
        http = server.http

        # Loading: alive, not ready, and it says how far it is.
        assert (await http.get("/livez")).status_code == 200
        async with asyncio.timeout(60):
            while "40%" not in (unready := await http.get("/readyz")).text:
                await asyncio.sleep(0.01)
        assert (unready.status_code, unready.text) == (503, "loading the engine, 40%: waiting for the gate")
        early = await http.post("/v1/completions", json=body(1))
        assert (early.status_code, early.json()["error"]["code"]) == (503, "not_ready")

        gate.touch()
        await server.event("ready")
        assert (await http.get("/readyz")).status_code == 200

        # Under load: more requests than slots, streamed and whole, when the signal comes.
        lines: list[str] = []
        async with http.stream("POST", "/v1/completions", json=body(400, stream=True)) as stream:
            reader = stream.aiter_lines()
            lines.append(await anext(reader))
            jobs = [asyncio.create_task(http.post("/v1/completions", json=body(100 + n))) for n in range(8)]
            async with asyncio.timeout(60):
                while 'trtllm_num_requests_waiting{model_name="tiny"} 0' in (await http.get("/metrics")).text:
                    await asyncio.sleep(0.005)
            server.process.send_signal(signal.SIGTERM)
            await server.event("draining")

            # Draining: unready, alive, still accepting, every connection closed behind its answer.
            assert (await http.get("/readyz")).text == "draining before shutdown"
            late = asyncio.create_task(http.post("/v1/completions", json=body(50)))
            alive = await http.get("/livez")
            assert (alive.status_code, alive.headers["connection"]) == (200, "close")
            answered = await late
            assert answered.json()["usage"]["completion_tokens"] == 50

            # A second signal skips the pause; what runs is finished.
            server.process.send_signal(signal.SIGTERM)
            lines += [line async for line in reader if line]
        assert lines[-1] == "data: [DONE]"
        answers = await asyncio.gather(*jobs)
        assert [a.json()["usage"]["completion_tokens"] for a in answers] == [100 + n for n in range(8)]
        assert await server.exit_code() == ExitCode.DONE
        with pytest.raises(httpx.ConnectError):
            await http.get("/livez")


async def test_signals_while_loading_end_the_process_at_once_however_many_they_are(tmp_path: Path) -> None:
    async with process("tiny", str(tmp_path / "never")) as server:
        assert server.process.stdout is not None
        first = Progress.from_json((await server.process.stdout.readline()).decode())
        assert (first.step.value, first.percent, first.detail) == ("weights", 0.0, "starting")
        ended = asyncio.create_task(server.exit_code())
        while not ended.done():
            with contextlib.suppress(ProcessLookupError):
                server.process.send_signal(signal.SIGTERM)
            await asyncio.wait([ended], timeout=0.02)
        assert await ended == ExitCode.DONE


async def test_a_step_that_fails_is_answered_with_an_error_and_ends_the_process_to_be_started_again() -> None:
    async with process("dying") as server:
        await server.event("ready")
        failed = await server.http.post("/v1/completions", json=body(5))
        assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")
        assert await server.exit_code() == ExitCode.TRY_AGAIN
