"""What the probes answer: alive from the start, ready only between the warm-up and the drain."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Phase(enum.StrEnum):
    LOADING = "loading"
    READY = "ready"
    FOLLOWING = "following"
    """Ready as the part of a group whose first pod answers."""
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(slots=True)
class Health:
    """Where the process is in its life; written by `main`, read by the probes and the API."""

    phase: Phase = Phase.LOADING
    percent: float = 0.0
    """Of loading."""
    detail: str = ""

    @property
    def ready(self) -> bool:
        return self.phase in (Phase.READY, Phase.FOLLOWING)

    @property
    def accepts(self) -> bool:
        """Draining still accepts: endpoints lag behind readiness."""
        return self.phase in (Phase.READY, Phase.DRAINING)

    @property
    def alive(self) -> bool:
        return self.phase is not Phase.FAILED

    def reason(self) -> str:
        """Why not ready, for people."""
        match self.phase:
            case Phase.LOADING:
                return f"loading the engine, {self.percent:.0f}%" + (f": {self.detail}" if self.detail else "")
            case Phase.DRAINING:
                return "draining before shutdown"
            case Phase.FAILED:
                return self.detail
            case Phase.READY:
                return "ready"
            case Phase.FOLLOWING:
                return "following: the first pod of the group answers"
