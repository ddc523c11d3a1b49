"""What is counted: by convention, without the names of objects, and only by the one that leads."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.unit.reconcile.builders import a_key
from trtllm_operator.cluster.metrics import Metrics
from trtllm_operator.reconcile.queue import Queue


def series(page: bytes) -> set[str]:
    """Names of all samples on a page, as Prometheus' own parser reads it."""
    return {sample.name for family in text_string_to_metric_families(page.decode()) for sample in family.samples}


def test_api_calls_are_counted_by_verb_and_code() -> None:
    metrics = Metrics()
    metrics.count_request("patch", "200")
    metrics.count_request("patch", "200")
    metrics.count_request("get", "error")
    assert metrics.requests("patch", "200") == 2
    assert metrics.requests("get", "error") == 1
    assert metrics.requests("get", "200") == 0


def test_looks_are_counted_by_result_and_timed() -> None:
    metrics = Metrics()
    metrics.observe_reconcile(0.02, "done")
    metrics.observe_reconcile(100.0, "failed")
    assert metrics.value("reconcile_total", result="failed") == 1
    assert metrics.value("reconcile_total", result="retried") == 0, "a rate needs a zero before the first error"
    assert metrics.value("reconcile_seconds_bucket", le="0.01") == 0
    assert metrics.value("reconcile_seconds_bucket", le="0.025") == 1
    assert metrics.value("reconcile_seconds_bucket", le="+Inf") == 2


def test_a_build_is_timed_by_toolchain_and_outcome() -> None:
    metrics = Metrics()
    metrics.observe_build("torch", "succeeded", 90.0)
    assert metrics.value("build_seconds_sum", toolchain="torch", outcome="succeeded") == 90.0
    assert metrics.value("build_seconds_bucket", toolchain="torch", outcome="succeeded", le="60.0") == 0
    assert metrics.value("build_seconds_bucket", toolchain="torch", outcome="succeeded", le="120.0") == 1


def test_a_standby_shows_that_it_does_not_lead_and_counts_nothing() -> None:
    leads = False
    metrics = Metrics(leads=lambda: leads)
    metrics.count_request("get", "200")
    assert series(metrics.render()) == {"trtllm_operator_leader"}
    assert b"\ntrtllm_operator_leader 0.0\n" in metrics.render()
    leads = True
    assert b"\ntrtllm_operator_leader 1.0\n" in metrics.render()
    assert metrics.requests("get", "200") == 1


def test_no_series_doubles_another_one() -> None:
    metrics = Metrics()
    metrics.observe_build("torch", "succeeded", 90.0)
    assert [name for name in series(metrics.render()) if name.endswith("_created")] == []


def test_the_wait_for_a_worker_counts_from_when_a_look_was_due() -> None:
    now, metrics = 100.0, Metrics()
    queue = Queue(clock=lambda: now, random=lambda: 0.0, observe=metrics.observe_wait)
    queue.add(a_key("planned"), after=60.0)
    queue.add(a_key("at-once"))
    now = 102.0
    assert queue.take() == a_key("at-once")
    now = 160.0
    assert queue.take() == a_key("planned")
    assert metrics.value("queue_latency_seconds_count") == 2
    assert metrics.value("queue_latency_seconds_sum") == 2.0, "a planned pause is no wait"
