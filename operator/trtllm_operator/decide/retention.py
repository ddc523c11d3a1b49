"""When the claim of an engine goes whose LLMEngine is gone.

An engine that ends by its retention takes its claim along. One that a person deletes leaves it behind: whoever asks for
the same finds the files again. The time runs from when nobody was seen to need them, and is written on the claim, so a
restart of the operator does not begin it anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ..api import names
from ..api.engine_options import retention_seconds
from ..api.views import timestamp
from ..desired import engine_claim
from .plan import Action, Apply, Delete
from .snapshot import ClaimSnapshot

USERS_SEEN: Final = timedelta(minutes=10)
"""How often to look whether the last user of a claim without an engine is gone: no event says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan:
    """Nobody reads a verdict on a claim."""

    actions: tuple[Action, ...] = ()
    look_again: datetime | None = None


def decide_claim(snapshot: ClaimSnapshot, now: datetime) -> ClaimPlan:
    """Keep, mark, or delete one claim that the operator made for an engine; pure."""
    meta = snapshot.claim.meta
    since = unreferenced_since(snapshot)
    if snapshot.engines or snapshot.users:
        unmarked = Apply(manifest=engine_claim.marked(meta, ""), reason="somebody needs the engine again")
        return ClaimPlan(
            actions=(unmarked,) if since is not None else (),
            look_again=None if snapshot.engines else now + USERS_SEEN,
        )
    keep = retention_seconds(meta.annotations.get(names.RETENTION_ANNOTATION), snapshot.defaults.retention_seconds)
    if keep is None:
        return ClaimPlan()
    if since is None:
        now = now.replace(microsecond=0)
        mark = Apply(manifest=engine_claim.marked(meta, f"{now:%Y-%m-%dT%H:%M:%SZ}"), reason="nobody needs the engine")
        return ClaimPlan(actions=(mark,), look_again=now + timedelta(seconds=keep))
    end = since + timedelta(seconds=keep)
    if now < end:
        return ClaimPlan(look_again=end)
    gone = Delete(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        owner_uid="",
        reason="retention is over",
    )
    return ClaimPlan(actions=(gone,))


def unreferenced_since(snapshot: ClaimSnapshot) -> datetime | None:
    """What was written on the claim; None also for what is no time: it is written anew."""
    try:
        since = timestamp(snapshot.claim.meta.annotations.get(names.UNREFERENCED_ANNOTATION))
    except ValueError:
        return None
    return since if since is not None and since.tzinfo is not None else None
