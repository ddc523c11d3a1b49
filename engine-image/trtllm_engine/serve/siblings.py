"""The other ranks of a pod: one process each, started by the pod's first."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from trtllm_engine.contract import ServeRequest
from trtllm_engine.serve.placement import Placement

STOP_SECONDS: Final = 5.0
"""How long a process may take to end when all is said; one that computes ends when the group does."""


class Siblings:
    """Processes that end by themselves with their group, and that end with this object whatever happens."""

    def __init__(self, request: ServeRequest, store: Path, placement: Placement) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "trtllm_engine.serve.follower", order(request, store, placement, rank)]
            )
            for rank in placement.ranks[1:]
        ]

    def wait(self) -> None:
        """Let them end; those that do not are killed."""
        deadline = time.monotonic() + STOP_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def order(request: ServeRequest, store: Path, placement: Placement, rank: int) -> str:
    """What a sibling is told, as its one argument."""
    return json.dumps({"request": request.to_dict(), "store": str(store), "placement": asdict(placement), "rank": rank})


def read_order(arguments: Sequence[str]) -> tuple[ServeRequest, Path, Placement, int]:
    said = json.loads(arguments[0])
    return ServeRequest.from_dict(said["request"]), Path(said["store"]), Placement(**said["placement"]), said["rank"]
