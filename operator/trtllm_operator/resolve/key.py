"""The engine key: one number for everything that an engine's content depends on, and for nothing else."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from trtllm_engine.contract import BuildArgs, Mapping, ModelFacts, ModelSource, Target, Toolchain

KEY_FORMAT: Final = 1
"""Raised when the same fields begin to mean another content."""


def engine_key(
    *,
    source: ModelSource,
    facts: ModelFacts,
    args: BuildArgs,
    mapping: Mapping,
    toolchain: Toolchain,
    toolchain_version: str,
    target: Target,
) -> str:
    """64 hexadecimal digits: sha256 over the canonical build request without its paths.

    A hub model is its repository and commit. A model on a volume is its digest, wherever it lies.
    """
    model = {"repo": source.repo, "commit": facts.commit} if source.repo and facts.commit else {"digest": facts.digest}
    content = {
        "format": KEY_FORMAT,
        "model": model,
        "args": args.to_dict(),
        "mapping": mapping.to_dict(),
        "toolchain": toolchain.value,
        "toolchainVersion": toolchain_version,
        "target": target.to_dict(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
