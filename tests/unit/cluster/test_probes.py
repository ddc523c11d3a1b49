"""Probes and metrics, as the kubelet and Prometheus see them."""

from __future__ import annotations

import aiohttp

from trtllm_operator.cluster.metrics import Metrics
from trtllm_operator.cluster.probes import Probes


async def fetched(probes: Probes, path: str) -> tuple[int, str]:
    """Status and body."""
    await probes.start()
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{probes.port}{path}") as answer:
            return answer.status, await answer.text()
    finally:
        await probes.stop()


def some_probes(live: str | None = None, ready: str | None = None, metrics: Metrics | None = None) -> Probes:
    return Probes("127.0.0.1:0", metrics=metrics or Metrics(), live=lambda: live, ready=lambda: ready)


async def test_a_healthy_process_is_live_and_ready() -> None:
    assert await fetched(some_probes(), "/livez") == (200, "ok\n")
    assert await fetched(some_probes(), "/readyz") == (200, "ok\n")


async def test_a_failing_probe_says_why() -> None:
    assert await fetched(some_probes(live="a watch stream has been silent for 200 s"), "/livez") == (
        503,
        "a watch stream has been silent for 200 s\n",
    )
    assert await fetched(some_probes(ready="the first resync is not done"), "/readyz") == (
        503,
        "the first resync is not done\n",
    )


async def test_metrics_are_prometheus_text() -> None:
    metrics = Metrics()
    metrics.count_request("patch", "200")
    status, text = await fetched(some_probes(metrics=metrics), "/metrics")
    assert status == 200
    assert 'trtllm_operator_api_requests_total{code="200",verb="patch"} 1.0' in text.splitlines()
