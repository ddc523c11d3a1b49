"""Whether servers found the files of an engine corrupt, and how often these were built anew.

A server verifies before it loads. What it found counts only if its run began after the files were published: an
earlier one read what a rebuild has replaced since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from trtllm_engine.contract import ExitCode

from ..api import names
from ..api.views import PodView
from . import runs
from .snapshot import Run

_VERIFIED: Final = re.compile(r"rank[0-9]{4}\.(engine|json)|config\.json")
"""The files that a build writes and verifies. A tokenizer is the model's own: building anew copies the same."""


def found_corrupt(pod: PodView) -> bool:
    """Whether the pod's last run ended at a file that a build can mend."""
    said = runs.result(pod) if pod.exit_code == ExitCode.CORRUPT_INPUT else None
    return said is not None and _VERIFIED.fullmatch(said.field or "") is not None


def corruption(servers: Iterable[PodView], published: datetime | None) -> str | None:
    """What the first of them said about the files as they are now; None: nothing."""
    found = [pod for pod in servers if found_corrupt(pod) and _read_them(pod, published)]
    first = min(found, key=lambda pod: (pod.finished is None, pod.finished, pod.meta.name), default=None)
    if first is None or (said := runs.result(first)) is None:
        return None
    return f"{said.message or said.field or 'a file is corrupt'} (found by pod {first.meta.name})"


def rebuild_of(run: Run | None) -> int:
    """Which rebuild a Job is; 0: the first build, or no Job."""
    number = run.job.meta.annotations.get(names.REBUILD_ANNOTATION, "") if run is not None else ""
    return int(number) if number.isdecimal() else 0


def _read_them(pod: PodView, published: datetime | None) -> bool:
    return published is None or (pod.began is not None and pod.began > published)
