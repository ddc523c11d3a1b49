"""Where the harness keeps its things: never inside the work tree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
TOOL_MODULES: Final = Path(__file__).resolve().parent / "tools"
RUN: Final = Path("/run/trtllm-operator")
"""Sockets and mounts of nodes, one folder per cluster number. Short: a socket's path has at most 107 bytes."""


def cache() -> Path:
    """What can be made again: programs, images, the image stores of nodes. `TRTLLM_OPERATOR_CACHE` overrides."""
    return _folder("TRTLLM_OPERATOR_CACHE", "~/.cache/trtllm-operator")


def state() -> Path:
    """One folder per cluster: data, logs, kubeconfig, processes. `TRTLLM_OPERATOR_STATE` overrides."""
    return _folder("TRTLLM_OPERATOR_STATE", "~/.local/state/trtllm-operator")


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or default).expanduser().resolve()
