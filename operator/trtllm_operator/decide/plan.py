"""What a decision is: actions for the executor, and a verdict for the reader.

Pure data. Every action carries the reason that an Event or a condition will show.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Create the object, or mend it, by server-side apply. The executor skips it when nothing we own differs."""

    manifest: Manifest
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create what is never changed afterwards (Jobs, ControllerRevisions, engines, claims); existing is fine."""

    manifest: Manifest
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete exactly this object: the executor reads it afresh and compares UID and owner before it does."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    owner_uid: str
    propagation: str = "Foreground"
    force: bool = False
    """Of a pod whose node is lost: nobody is there to confirm its end."""
    reason: str = ""


Action = Apply | Create | Delete


class Course(enum.Enum):
    """Where a decision stands; decides the kstatus conditions."""

    SETTLED = "settled"
    """Nothing left to do for this generation."""
    MOVING = "moving"
    """Work is under way, or waits for something that the reason names: Reconciling=True."""
    STALLED = "stalled"
    """A person must act: Stalled=True."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The one thing that a reader must know: a closed reason (`api.conditions.Reason`) and a sentence."""

    course: Course
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Actions in order, the verdict, and when to look again without an event (a deadline); None: only on events."""

    actions: tuple[Action, ...] = ()
    verdict: Verdict
    look_again: datetime | None = None
