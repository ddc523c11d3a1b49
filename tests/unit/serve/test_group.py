"""The ranks of a model serve as one: the same text, one end, and no rank outlives another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.models import tiny_llama
from tests.unit.serve.harness import MODEL, serving
from tests.unit.serve.serving_process import Running
from trtllm_engine.build import job
from trtllm_engine.build.toolchain import toolchain_version
from trtllm_engine.checkpoint.folder import digest
from trtllm_engine.contract import (
    BuildArgs,
    BuildRequest,
    ExitCode,
    Mapping,
    ModelSource,
    Result,
    ServeRequest,
    Target,
    Toolchain,
    engine_folder,
)
from trtllm_engine.mounts import Mounts
from trtllm_engine.serve.torch_loader import load_engine

DEADLINE = 300
"""Seconds for any one thing to happen; importing torch on a busy machine is the longest."""

QUESTIONS: list[dict[str, Any]] = [
    {"prompt": "the red engine", "max_tokens": 20},
    {"prompt": "a token of the slow cache is in one layer", "max_tokens": 30},
    {"prompt": [*range(10, 70)], "max_tokens": 12},
]
"""The last prompt is longer than what one step prefills beside another."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mounts with a tiny model, to build engines of any mapping from."""
    root = tmp_path_factory.mktemp("root")
    tiny_llama(Mounts.below(root).models / "tiny", vocab_size=320)
    return root


def build(root: Path, key: str, mapping: Mapping) -> ServeRequest:
    """Publish every rank."""
    mounts = Mounts.below(root)
    request = BuildRequest(
        engine_key=key,
        model=ModelSource(path="/models/tiny"),
        model_digest=digest(mounts.models / "tiny"),
        args=BuildArgs(dtype="float32", max_batch_size=3, max_input_len=80, max_seq_len=96),
        mapping=mapping,
        toolchain=Toolchain.TORCH,
        toolchain_version=toolchain_version(Toolchain.TORCH),
        target=Target(),
        output=engine_folder(key),
    )
    for rank in range(mapping.world_size):
        job.build(request, rank, mounts, job.reporter(request, rank))
    return ServeRequest(
        engine_key=key,
        engine=engine_folder(key),
        model_name=MODEL,
        device="cpu",
        port=0,
        drain_seconds=0,
        mapping=mapping,
    )


@pytest.fixture(scope="module")
def expected(root: Path) -> list[str]:
    """What one rank answers."""

    async def ask() -> list[str]:
        loaded = load_engine(build(root, "whole", Mapping()), root / "store", lambda percent, detail: None)
        async with serving(loaded) as server:
            return await answers(server.http)

    return asyncio.run(ask())


async def answers(http: httpx.AsyncClient) -> list[str]:
    """All questions at once, greedy."""
    asked = [http.post("/v1/completions", json={"model": MODEL, "temperature": 0, **body}) for body in QUESTIONS]
    return [answer.json()["choices"][0]["text"] for answer in await asyncio.gather(*asked)]


@contextlib.asynccontextmanager
async def pod(root: Path, request: ServeRequest, name: str = "pod", **environment: str) -> AsyncIterator[Running]:
    """A pod's process as the image starts it; all that it started is gone afterwards."""
    file = root / f"{request.engine_key}.json"
    file.write_text(request.to_json())
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "trtllm_engine", "serve", "--request", str(file)],
        *["--root", str(root), "--result", str(root / f"{name}.result")],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            port = (await Running(process, httpx.AsyncClient()).event("listening"))["port"]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as http:
                yield Running(process, http)
    finally:
        for pid in [*children(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.communicate()


def children(pid: int) -> list[int]:
    """The processes that a running process started itself."""
    with contextlib.suppress(FileNotFoundError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


async def test_tensor_ranks_in_one_pod_give_the_text_of_one_rank_and_end_together(
    root: Path, expected: list[str]
) -> None:
    async with pod(root, build(root, "tensor", Mapping(tp=2))) as server:
        ready = await server.event("ready")
        assert ready["runtime"] == "torch-cpu-2-ranks"
        assert await answers(server.http) == expected
        (sibling,) = children(server.process.pid)

        asked = asyncio.create_task(answers(server.http))
        async with asyncio.timeout(DEADLINE):
            while 'num_requests_running{model_name="tiny"} 3' not in (await server.http.get("/metrics")).text:
                await asyncio.sleep(0.001)
        server.process.send_signal(signal.SIGTERM)
        assert await asked == expected, "what was accepted is answered"
        assert await server.exit_code() == ExitCode.DONE
        assert not Path(f"/proc/{sibling}").exists()


async def test_pipeline_ranks_in_two_pods_are_ready_together_and_die_together(root: Path, expected: list[str]) -> None:
    request = build(root, "pipeline", Mapping(pp=2))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "LOCAL_WORLD_SIZE": "1"}
    async with pod(root, request, "worker", GROUP_RANK="1", **environment) as worker:
        assert (await worker.http.get("/livez")).status_code == 200
        waiting = await worker.http.get("/readyz")
        assert (waiting.status_code, "waiting for rank 0 at 127.0.0.1" in waiting.text) == (503, True)
        async with pod(root, request, "leader", GROUP_RANK="0", **environment) as leader:
            await leader.event("ready")
            assert await answers(leader.http) == expected
            assert (await worker.http.get("/readyz")).status_code == 200
            refused = await worker.http.post("/v1/completions", json={"model": MODEL, "prompt": "x"})
            assert "the first pod of the group answers" in refused.json()["error"]["message"]

            worker.process.kill()
            assert await leader.exit_code() == ExitCode.TRY_AGAIN
    result = Result.from_json((root / "leader.result").read_text())
    assert (result.code, result.message) == (
        ExitCode.TRY_AGAIN,
        "rank 1 was lost: it closed the connection; the group starts again",
    )


async def test_a_rank_whose_file_is_bad_fails_the_group_with_its_name(root: Path) -> None:
    request = build(root, "spoilt", Mapping(tp=2))
    engine = root / "store" / request.engine / "rank0001.engine"
    engine.write_bytes(engine.read_bytes()[:-1])
    async with pod(root, request) as server:
        assert await server.exit_code() == ExitCode.CORRUPT_INPUT
    result = Result.from_json((root / "pod.result").read_text())
    assert (result.field, str(result.message).startswith("rank 1: rank0001.engine: ")) == ("rank0001.engine", True)
