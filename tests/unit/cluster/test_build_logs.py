"""Build progress: the last line that counts, told only when a reader would see a difference."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.reconcile.builders import a_key, an_object
from trtllm_engine.contract import Progress, Step
from trtllm_operator.api.names import ROLE_LABEL
from trtllm_operator.cluster.build_logs import AT_ONCE, last_progress, read_once
from trtllm_operator.cluster.errors import Unreachable
from trtllm_operator.reconcile.store import Object, Store


def a_line(percent: float, step: Step = Step.BUILD, rank: int = 0) -> str:
    return Progress(ts="2026-01-01T00:00:00Z", step=step, percent=percent, rank=rank).to_json()


def a_pod(name: str = "a", *, role: str = "build", running: bool = True) -> Object:
    state: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}} if running else {"waiting": {}}
    return an_object(name, labels={ROLE_LABEL: role}) | {"status": {"containerStatuses": [{"state": state}]}}


class FakeLogs:
    """Stands in for the kubelets; notes how many logs are read at the same time."""

    def __init__(self, **logs: str | Exception) -> None:
        self.logs = logs
        self.asked: list[str] = []
        self.open = 0
        self.most = 0

    async def pod_log(self, namespace: str, name: str, *, tail_lines: int, limit_bytes: int) -> str:
        self.asked.append(name)
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        log = self.logs[name]
        if isinstance(log, Exception):
            raise log
        return log


def a_round(store: Store, logs: FakeLogs) -> list[str]:
    """Read once; returns the names of the enqueued pods."""
    enqueued: list[Object] = []
    asyncio.run(read_once(store, logs, enqueued.append))
    return sorted(obj["metadata"]["name"] for obj in enqueued)


def a_store(*pods: Object) -> Store:
    store = Store(labels=[ROLE_LABEL])
    for pod in pods:
        store.put(pod)
    return store


def test_the_last_progress_line_counts() -> None:
    progress = last_progress(f"{a_line(10)}\nwarning: something\n{a_line(20)}\nnot json\n")
    assert progress is not None
    assert progress.percent == 20


def test_a_line_that_the_byte_limit_cut_is_passed_over() -> None:
    progress = last_progress(f"{a_line(10)}\n{a_line(20)[:-5]}")
    assert progress is not None
    assert progress.percent == 10


def test_a_log_without_progress_says_nothing() -> None:
    assert last_progress("loading\n{}\n[1, 2]\nnull\n") is None
    assert last_progress("") is None


def test_progress_reaches_the_store_and_wakes_the_owner() -> None:
    store = a_store(a_pod())
    assert a_round(store, FakeLogs(a=a_line(41.5))) == ["a"]
    progress = store.progress(a_key())
    assert progress is not None
    assert progress.percent == 41.5


def test_less_than_a_percent_is_no_news() -> None:
    store = a_store(a_pod())
    a_round(store, FakeLogs(a=a_line(41.2)))
    assert a_round(store, FakeLogs(a=a_line(41.9))) == []
    assert a_round(store, FakeLogs(a=a_line(42.0))) == ["a"]
    assert a_round(store, FakeLogs(a=a_line(42.0, Step.WRITE))) == ["a"]


def test_only_running_pods_that_fetch_or_build_are_read() -> None:
    store = a_store(
        a_pod("build"), a_pod("fetch", role="fetch"), a_pod("server", role="server"), a_pod("w", running=False)
    )
    logs = FakeLogs(build=a_line(1), fetch=a_line(1))
    a_round(store, logs)
    assert sorted(logs.asked) == ["build", "fetch"]


def test_a_log_that_cannot_be_read_stops_no_other() -> None:
    store = a_store(a_pod("a"), a_pod("b"))
    assert a_round(store, FakeLogs(a=Unreachable("kubelet away"), b=a_line(5))) == ["b"]


def test_few_logs_are_read_at_the_same_time() -> None:
    names = [f"pod-{number}" for number in range(20)]
    logs = FakeLogs(**{name: a_line(1) for name in names})
    a_round(a_store(*map(a_pod, names)), logs)
    assert len(logs.asked) == 20
    assert logs.most == AT_ONCE
