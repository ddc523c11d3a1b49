"""What the process counts for `/metrics`, and the page itself.

A label value never holds an object's name, or the series would grow without end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector

RECONCILE_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bucket bounds of a look: from a decision without a write to a hanging API server."""
QUEUE_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bucket bounds of the wait for a worker: from an idle process to one that is far behind."""
BUILD_SECONDS: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0, 7200.0, 14400.0, 21600.0)
"""Bucket bounds of a build: from a small model's weights to the deadline as installed."""

PREFIX: Final = "trtllm_operator"
LEADER: Final = f"{PREFIX}_leader"

# A series of its own for the moment when another one began would double the page and says what `up` says.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All series of the process; a process that `leads` not shows that, and nothing that the leader counts too."""

    def __init__(self, leads: Callable[[], bool] = lambda: True) -> None:
        self._leads = leads
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Gauge(LEADER, "1 while this process holds the lease.", registry=registry).set_function(lambda: int(leads()))
        self._requests = Counter(
            f"{PREFIX}_api_requests",
            "API calls by verb and HTTP status; `error` when there was no answer.",
            ("verb", "code"),
            registry=registry,
        )
        self._results = Counter(
            f"{PREFIX}_reconcile",
            "Looks at an object by result: done, retried (an expected error), failed (an unexpected one).",
            ("result",),
            registry=registry,
        )
        self._seconds = Histogram(
            f"{PREFIX}_reconcile_seconds", "Seconds per look.", buckets=RECONCILE_SECONDS, registry=registry
        )
        self._waits = Histogram(
            f"{PREFIX}_queue_latency_seconds",
            "Seconds from when a look was due until a worker took it.",
            buckets=QUEUE_SECONDS,
            registry=registry,
        )
        self._builds = Histogram(
            f"{PREFIX}_build_seconds",
            "Seconds of a build's Job by toolchain and outcome: succeeded or failed.",
            ("toolchain", "outcome"),
            buckets=BUILD_SECONDS,
            registry=registry,
        )
        self._rollouts = Counter(
            f"{PREFIX}_rollouts", "Rollouts that were completed: all replicas of the revision serve.", registry=registry
        )
        self._rollbacks = Counter(
            f"{PREFIX}_rollbacks",
            "Revisions that failed and were taken back, by what had failed.",
            ("reason",),
            registry=registry,
        )
        for result in ("done", "retried", "failed"):
            self._results.labels(result)

    def count_request(self, verb: str, code: str) -> None:
        """An API call ended with this HTTP status; `error` when there was no answer."""
        self._requests.labels(verb, code).inc()

    def observe_reconcile(self, seconds: float, result: str) -> None:
        """A key was looked at."""
        self._results.labels(result).inc()
        self._seconds.observe(seconds)

    def observe_wait(self, seconds: float) -> None:
        """A due key was taken by a worker after this time."""
        self._waits.observe(seconds)

    def observe_build(self, toolchain: str, outcome: str, seconds: float) -> None:
        """A build came to its end."""
        self._builds.labels(toolchain, outcome).observe(seconds)

    def count_rollout(self) -> None:
        """All replicas of a revision serve."""
        self._rollouts.inc()

    def count_rollback(self, reason: str) -> None:
        """A revision was given up."""
        self._rollbacks.labels(reason).inc()

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A value that is read whenever it is asked for."""
        Gauge(f"{PREFIX}_{name}", text, registry=self._registry).set_function(read)

    def collect(self, collector: Collector) -> None:
        """Series that are made whenever they are asked for."""
        self._registry.register(collector)

    def value(self, name: str, **labels: str) -> float | None:
        """What a series says now; None if there is no such series."""
        return self._registry.get_sample_value(f"{PREFIX}_{name}", labels)

    def requests(self, verb: str, code: str) -> int:
        return int(self.value("api_requests_total", verb=verb, code=code) or 0)

    def render(self) -> bytes:
        """The page that Prometheus scrapes."""
        return generate_latest(self._registry if self._leads() else self._registry.restricted_registry([LEADER]))
