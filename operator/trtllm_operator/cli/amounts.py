"""Times, sizes and progress as people read them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

BAR: Final = 10
"""Columns of a progress bar."""


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def age(since: datetime | None, now: datetime) -> str:
    """`40s`, `3m`, `5h`, `12d`, as kubectl shows ages; empty if nobody knows since when."""
    if since is None:
        return ""
    seconds = max(0, int((now - since).total_seconds()))
    for limit, unit, length in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds // length}{unit}"
    return f"{seconds // 86400}d"


def duration(seconds: float) -> str:
    """`42s`, `18m42s`, `2h05m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def size(number: int) -> str:
    """`269 MiB`, `71.2 GiB`."""
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"


def bar(percent: float) -> str:
    """`███████░░░ 68%`; full only when it is."""
    shown = min(100.0, max(0.0, percent))
    full = int(shown * BAR / 100)
    return f"{'█' * full}{'░' * (BAR - full)} {int(shown)}%"
