"""Tests count writes by what the API server itself wrote down."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from tests.cluster.audit import read, writes


def line(verb: str, *, agent: str = "operator/1.0", second: int = 0, stage: str = "ResponseComplete") -> str:
    event = {
        "stage": stage,
        "verb": verb,
        "user": {"username": "system:serviceaccount:ns:operator"},
        "userAgent": agent,
        "objectRef": {"resource": "jobs", "namespace": "team", "name": "build", "apiGroup": "batch"},
        "responseStatus": {"code": 201},
        "requestReceivedTimestamp": f"2026-03-01T12:00:{second:02}.000000Z",
    }
    return json.dumps(event, separators=(",", ":")) + "\n"


def test_writes_are_counted_per_client_from_a_time_on(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(
        line("create", second=1)
        + line("get", second=6)
        + line("patch", second=7)
        + line("delete", second=8, agent="kubectl")
    )
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert [event.verb for event in writes(log, noon, "operator")] == ["create", "patch"]
    (late,) = writes(log, noon.replace(second=5), "operator")
    assert (late.verb, late.resource, late.namespace, late.name, late.code) == ("patch", "jobs", "team", "build", 201)
    assert [event.user_agent for event in writes(log, noon, "kubectl")] == ["kubectl"]


def test_a_half_written_line_and_an_unfinished_request_are_not_read(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(line("watch", stage="ResponseStarted") + line("create") + line("create")[:40])
    assert [event.verb for event in read(log)] == ["create"]


def test_no_log_is_no_event(tmp_path: Path) -> None:
    assert read(tmp_path / "absent.jsonl") == []
