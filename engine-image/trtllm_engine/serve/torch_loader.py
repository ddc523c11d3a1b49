"""Loads what answers requests: rank 0 of a published engine, its tokenizer, and the tokens that end an answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from trtllm_engine.build.engine_folder import EngineFolder
from trtllm_engine.checkpoint.folder import read_json
from trtllm_engine.contract import ServeRequest
from trtllm_engine.network.config import ConfigReader
from trtllm_engine.serve.folder_tokenizer import FolderTokenizer
from trtllm_engine.serve.load import Loaded, Report
from trtllm_engine.serve.placement import Placement
from trtllm_engine.serve.rank_loader import load_rank, open_engine

GENERATION_CONFIG: Final = "generation_config.json"


def load_engine(
    request: ServeRequest,
    store: Path,
    report: Report,
    placement: Placement | None = None,
    meet: Callable[[], str] = lambda: "",
) -> Loaded:
    """Verify and load the engine at `store / request.engine`; of several ranks, the first: see `load_rank`.

    Raises `Failure`: what `open_engine` raises.
    """
    report(0.0, "reading the engine's config")
    engine = open_engine(request, store)
    report(1.0, "loading the tokenizer")
    tokenizer = FolderTokenizer(engine.path)
    runtime = load_rank(engine, request.device, placement or Placement(), 0, meet, report)
    return Loaded(runtime, tokenizer, _end_tokens(engine, tokenizer))


def _end_tokens(engine: EngineFolder, tokenizer: FolderTokenizer) -> frozenset[int]:
    """All that may end an answer: the two configs and the tokenizer often name different ones, all of them meant."""
    ends = {*engine.config.eos_token_ids, *tokenizer.end_tokens}
    if (file := engine.path / GENERATION_CONFIG).is_file():
        ends |= {*ConfigReader(read_json(file), GENERATION_CONFIG).integers("eos_token_id")}
    return frozenset(ends)
