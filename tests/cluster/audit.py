"""The API server's audit log: who asked for what, so that tests can count writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.cluster.users import USERS

WRITE_VERBS: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})

POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "users": [USERS["harness"][0]]}, {"level": "Metadata"}],
}
"""One line per answered request, without bodies; what the harness itself asks is left out."""


@dataclass(frozen=True)
class AuditEvent:
    """One answered request. `received` is when the API server got it, `code` the HTTP status of the answer."""

    received: datetime
    verb: str
    user: str
    user_agent: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int

    @classmethod
    def parse(cls, line: str) -> AuditEvent:
        """Read one line of the log."""
        raw: dict[str, Any] = json.loads(line)
        reference = raw.get("objectRef") or {}
        return cls(
            received=datetime.fromisoformat(raw["requestReceivedTimestamp"]),
            verb=raw["verb"],
            user=raw["user"]["username"],
            user_agent=raw.get("userAgent", ""),
            resource=reference.get("resource", ""),
            subresource=reference.get("subresource", ""),
            namespace=reference.get("namespace", ""),
            name=reference.get("name", ""),
            code=raw["responseStatus"]["code"],
        )


def read(log: Path) -> list[AuditEvent]:
    """All answered requests, in the order in which they were answered."""
    # The last line may be half-written.
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [AuditEvent.parse(line) for line in lines if '"stage":"ResponseComplete"' in line]


def writes(log: Path, since: datetime, user_agent_contains: str) -> list[AuditEvent]:
    """The requests since a time (with a zone) that could change something, by clients of a given user agent."""
    return [
        event
        for event in read(log)
        if event.verb in WRITE_VERBS and event.received >= since and user_agent_contains in event.user_agent
    ]
