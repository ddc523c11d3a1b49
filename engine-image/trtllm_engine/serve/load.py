"""From an engine folder on the volume to a runtime that has computed its first token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trtllm_engine.contract import ServeRequest
from trtllm_engine.serve.runtime import Row, Runtime
from trtllm_engine.serve.tokenizer import Tokenizer

Report = Callable[[float, str], None]
"""Told the percentage of loading and what it is at; may raise to stop the loading."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that answers a request."""

    runtime: Runtime
    tokenizer: Tokenizer
    end_tokens: frozenset[int]
    """Tokens that end an answer."""


Loader = Callable[[ServeRequest, Path, Report], Loaded]
"""Loads a request's engine from below the store's folder. Raises `Failure`."""


def load_engine(request: ServeRequest, store: Path, report: Report) -> Loaded:
    """The loader of published engines. Its libraries take seconds to import, so they come after the listener is up."""
    from trtllm_engine.serve import torch_loader

    return torch_loader.load_engine(request, store, report)


def warm_up(runtime: Runtime) -> None:
    """One prompt token and one decoded token: allocations and kernels that the first request need not wait for."""
    runtime.forward([Row(slot=0, position=0, tokens=[0])])
    if runtime.max_seq_len > 1:
        runtime.forward([Row(slot=0, position=1, tokens=[0])])
