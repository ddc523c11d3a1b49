"""Counters, gauges and histograms in Prometheus' text format; names follow vLLM's with our prefix."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

TTFT_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
INTER_TOKEN_BUCKETS: Final = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0)
LATENCY_BUCKETS: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metric(Protocol):
    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """(suffix of the name, labels, value)."""

    @property
    def kind(self) -> str: ...


class Counter:
    """Only rises; one value per value of `label`, or a single one without label."""

    kind = "counter"

    def __init__(self, label: str | None = None, values: Sequence[str] = ("",)) -> None:
        self._label = label
        self._counts = dict.fromkeys(values, 0)

    def add(self, amount: int = 1, value: str = "") -> None:
        self._counts[value] += amount

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        for value, count in self._counts.items():
            yield "", {self._label: value} if self._label else {}, count


class Gauge:
    """Read from its owner when asked."""

    kind = "gauge"

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        yield "", {}, self._read()


class Histogram:
    """Cumulative buckets; `bounds` are upper bounds in seconds, rising, without infinity."""

    kind = "histogram"

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        total = 0
        for bound, count in zip([*self._bounds, float("inf")], self._counts, strict=True):
            total += count
            yield "_bucket", {"le": "+Inf" if bound == float("inf") else f"{bound:g}"}, total
        yield "_sum", {}, self._sum
        yield "_count", {}, total


class Metrics:
    """Everything that one serving process measures; `running` and `waiting` are counted by the scheduler."""

    def __init__(self, running: Callable[[], float] = lambda: 0, waiting: Callable[[], float] = lambda: 0) -> None:
        self.running = running
        self.waiting = waiting
        self.prompt_tokens = Counter()
        self.generation_tokens = Counter()
        self.finished = Counter("finished_reason", ("stop", "length", "abort", "timeout", "error"))
        self.refused = Counter("reason", ("queue_full", "not_ready", "invalid"))
        self.time_to_first_token = Histogram(TTFT_BUCKETS)
        self.inter_token = Histogram(INTER_TOKEN_BUCKETS)
        self.latency = Histogram(LATENCY_BUCKETS)

    def render(self, model_name: str) -> str:
        """The whole page; every sample carries the label `model_name`."""
        families: list[tuple[str, str, Metric]] = [
            ("num_requests_running", "Requests that hold a cache slot.", Gauge(lambda: self.running())),
            ("num_requests_waiting", "Requests that wait for a cache slot.", Gauge(lambda: self.waiting())),
            ("prompt_tokens_total", "Prompt tokens computed.", self.prompt_tokens),
            ("generation_tokens_total", "Tokens generated.", self.generation_tokens),
            ("request_success_total", "Requests that ended, by reason.", self.finished),
            ("request_refused_total", "Requests that were not taken, by reason.", self.refused),
            ("time_to_first_token_seconds", "From arrival to the first token.", self.time_to_first_token),
            ("inter_token_latency_seconds", "Between two tokens of one answer.", self.inter_token),
            ("e2e_request_latency_seconds", "From arrival to the last token.", self.latency),
        ]
        lines: list[str] = []
        for name, text, metric in families:
            lines += [f"# HELP trtllm_{name} {text}", f"# TYPE trtllm_{name} {metric.kind}"]
            for suffix, labels, value in metric.samples():
                pairs = ",".join(f'{k}="{_escape(v)}"' for k, v in {"model_name": model_name, **labels}.items())
                lines.append(f"trtllm_{name}{suffix}{{{pairs}}} {value!r}")
        return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
