"""How many CPUs this process may really use; a container's quota is smaller than what the machine shows."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")


def usable_cpus(cgroup: Path = CGROUP_ROOT, affinity: int | None = None) -> int:
    """The smaller of the affinity mask and the cgroup's CPU quota (version 2, else 1), rounded up; at least 1."""
    allowed = affinity if affinity is not None else len(os.sched_getaffinity(0))
    quota = _quota_v2(cgroup / "cpu.max") or _quota_v1(cgroup / "cpu")
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def _quota_v2(file: Path) -> float | None:
    match _read(file).split():
        case [quota, period] if quota.isdigit() and int(period) > 0:
            return int(quota) / int(period)
        case _:
            return None


def _quota_v1(folder: Path) -> float | None:
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) > 0 else None


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
