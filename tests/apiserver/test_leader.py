"""Two operator processes on a real API server: one works, the other takes over."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from tests.cluster.cluster import Cluster
from trtllm_operator.api.names import MANAGER
from trtllm_operator.cluster.client import Client
from trtllm_operator.cluster.leader import Leader

pytestmark = pytest.mark.apiserver


def a_leader(client: Client, namespace: str, identity: str, name: str = "lease") -> Leader:
    return Leader(
        client,
        namespace=namespace,
        name=name,
        identity=identity,
        clock=asyncio.get_running_loop().time,
        now=lambda: datetime.now(UTC),
    )


async def holder(client: Client, namespace: str, name: str) -> str:
    lease = await client.get("Lease", namespace, name)
    return "" if lease is None else str(lease["spec"]["holderIdentity"])


async def test_the_lease_passes_on_when_it_is_released(client: Client, namespace: str) -> None:
    one, two = a_leader(client, namespace, "one"), a_leader(client, namespace, "two")
    await one.acquire()
    assert await holder(client, namespace, "lease") == "one"
    waiting = asyncio.create_task(two.acquire())
    await one.release()
    async with asyncio.timeout(10):
        await waiting
    assert await holder(client, namespace, "lease") == "two"
    assert not one.is_leader


@dataclass
class Process:
    """A running operator."""

    process: asyncio.subprocess.Process
    port: int
    log: Path

    async def status(self, path: str) -> int:
        """HTTP status of a probe; 0 while nobody answers."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def leads(self) -> bool:
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}/metrics") as answer,
            ):
                return "\ntrtllm_operator_leader 1.0\n" in await answer.text()
        except aiohttp.ClientError:
            return False

    async def works(self) -> bool:
        return await self.leads() and await self.status("/readyz") == 200

    async def until(self, condition: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not await condition():
            assert self.process.returncode is None, self.log.read_text()
            assert asyncio.get_running_loop().time() < deadline, self.log.read_text()
            await asyncio.sleep(0.1)

    async def exit_code(self, seconds: float) -> int:
        async with asyncio.timeout(seconds):
            return await self.process.wait()


@asynccontextmanager
async def an_operator(cluster: Cluster, namespace: str, log: Path) -> AsyncIterator[Process]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("w") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "trtllm_operator", "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace),
            *("--lease-namespace", namespace, "--probe-address", f"127.0.0.1:{port}"),
            stderr=file,
            env={name: value for name, value in os.environ.items() if name != "WATCH_NAMESPACES"},
        )
    try:
        yield Process(process, port, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_process_that_is_told_to_stop_gives_the_lease_back_and_exits_zero(
    client: Client, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    async with an_operator(cluster, namespace, tmp_path / "one") as one:
        await one.until(one.works)
        assert (await holder(client, namespace, MANAGER)).startswith(socket.gethostname())
        one.process.send_signal(signal.SIGTERM)
        assert await one.exit_code(15) == 0
        assert await holder(client, namespace, MANAGER) == ""
        assert "Traceback" not in one.log.read_text()


async def test_a_standby_is_ready_and_takes_over_from_a_killed_leader(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    async with an_operator(cluster, namespace, tmp_path / "one") as leader:
        await leader.until(leader.works)
        async with an_operator(cluster, namespace, tmp_path / "two") as standby:

            async def stands_by() -> bool:
                return await standby.status("/readyz") == 200

            await standby.until(stands_by)
            assert not await standby.leads()
            leader.process.kill()
            await standby.until(standby.works)


async def test_a_process_that_was_stopped_too_long_exits_when_it_wakes(
    client: Client, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    async with an_operator(cluster, namespace, tmp_path / "one") as sleeper:
        await sleeper.until(sleeper.works)
        sleeper.process.send_signal(signal.SIGSTOP)
        # Who waits for the lease measures how long it has not changed: longer than the sleeper may trust it.
        await a_leader(client, namespace, "other", MANAGER).acquire()
        sleeper.process.send_signal(signal.SIGCONT)
        assert await sleeper.exit_code(15) == 1
        assert await holder(client, namespace, MANAGER) == "other"
