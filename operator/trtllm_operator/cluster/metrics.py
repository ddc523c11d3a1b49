"""Counts for `/metrics`, in Prometheus' text format."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable
from typing import Final

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bucket bounds of the reconcile times: from a decision without a write to a hanging API server."""

_Labels = tuple[tuple[str, str], ...]


class Metrics:
    """All series of the process; a label value never holds an object's name, or the series would grow without end."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._results: Counter[str] = Counter()
        self._buckets = [0] * (len(SECONDS) + 1)
        self._seconds = 0.0
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def count_request(self, verb: str, code: str) -> None:
        """An API call ended with this HTTP status; `error` when there was no answer."""
        self._requests[verb, code] += 1

    def observe_reconcile(self, seconds: float, result: str) -> None:
        """A key was looked at."""
        self._results[result] += 1
        self._buckets[bisect.bisect_left(SECONDS, seconds)] += 1
        self._seconds += seconds

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A value that is read whenever it is asked for."""
        self._gauges[name] = (text, read)

    def requests(self, verb: str, code: str) -> int:
        return self._requests[verb, code]

    def render(self) -> str:
        """The text that Prometheus scrapes."""
        lines = _head("api_requests_total", "counter", "API calls by verb and HTTP status.")
        lines += [
            _line("api_requests_total", (("verb", verb), ("code", code)), value)
            for (verb, code), value in sorted(self._requests.items())
        ]
        lines += _head("reconcile_total", "counter", "Reconciled keys by result.")
        lines += [
            _line("reconcile_total", (("result", result),), value) for result, value in sorted(self._results.items())
        ]
        lines += _head("reconcile_seconds", "histogram", "Seconds per reconciled key.")
        total = 0
        for bound, count in zip([*(str(bound) for bound in SECONDS), "+Inf"], self._buckets, strict=True):
            total += count
            lines.append(_line("reconcile_seconds_bucket", (("le", bound),), total))
        lines += [_line("reconcile_seconds_sum", (), self._seconds), _line("reconcile_seconds_count", (), total)]
        for name, (text, read) in sorted(self._gauges.items()):
            lines += [*_head(name, "gauge", text), _line(name, (), read())]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP trtllm_operator_{name} {text}", f"# TYPE trtllm_operator_{name} {kind}"]


def _line(name: str, labels: _Labels, value: float) -> str:
    inside = ",".join(f'{label}="{text}"' for label, text in labels)
    return f"trtllm_operator_{name}{{{inside}}} {value}" if inside else f"trtllm_operator_{name} {value}"
