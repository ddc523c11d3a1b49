"""What a published engine is: the files of its folder, and how they are read back.

`config.json` is the model's own with one more key, `ENGINE_KEY`, so that tokenizer libraries accept the folder as a
model. Each rank has an engine file and, written last, the record that makes it exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trtllm_engine.checkpoint.folder import CONFIG, read_json
from trtllm_engine.contract import (
    CONTRACT,
    BuildArgs,
    ContractError,
    ExitCode,
    Message,
    ModelSource,
    Target,
    Toolchain,
    rank_record,
)
from trtllm_engine.contract import Mapping as ParallelMapping
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.families import read_config

ENGINE_KEY: Final = "trtllm_engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts(Message):
    """What serving must know beside the model's config; equal for all ranks."""

    contract: int = CONTRACT
    engine_key: str
    model: ModelSource
    model_digest: str
    toolchain: Toolchain
    toolchain_version: str
    target: Target
    args: BuildArgs
    mapping: ParallelMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord(Message):
    """What scales of activations were found with."""

    samples: int
    tokens: int
    sha256: str
    """Of the samples' tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord(Message):
    """What was published for one rank."""

    contract: int = CONTRACT
    engine_key: str
    rank: int
    toolchain: Toolchain
    toolchain_version: str
    target: Target
    sha256: str
    bytes: int
    seconds: dict[str, float]
    peak_bytes: int
    plan: dict[str, int]
    """Counts from the builder: layers, weight bytes, ..."""
    calibration: CalibrationRecord | None = None
    """Absent: nothing was calibrated."""


@dataclass(frozen=True, slots=True)
class EngineFolder:
    """A published engine, its config understood."""

    path: Path
    facts: EngineFacts
    config: DecoderConfig


def engine_config(model_config: Mapping[str, object], facts: EngineFacts) -> dict[str, object]:
    """The `config.json` of an engine's folder."""
    return {**model_config, ENGINE_KEY: facts.to_dict()}


def read_engine(path: Path) -> EngineFolder:
    """Read `config.json`. Raises CORRUPT_INPUT naming it if it is missing or makes no sense."""
    if not (path / CONFIG).is_file():
        raise Failure(
            ExitCode.CORRUPT_INPUT, f"{path / CONFIG} does not exist: the engine was never published", field=CONFIG
        )
    raw = read_json(path / CONFIG)
    try:
        facts = EngineFacts.from_dict(raw.get(ENGINE_KEY), ENGINE_KEY)
    except ContractError as error:
        raise Failure(ExitCode.CORRUPT_INPUT, f"{CONFIG}: {error}", field=CONFIG) from error
    return EngineFolder(path, facts, read_config(raw))


def read_record(path: Path, rank: int) -> RankRecord:
    """Read a rank's record. Raises CORRUPT_INPUT naming it if it is missing or makes no sense."""
    name = rank_record(rank)
    if not (path / name).is_file():
        raise Failure(
            ExitCode.CORRUPT_INPUT, f"{path / name} does not exist: rank {rank} was never published", field=name
        )
    try:
        record = RankRecord.from_dict(read_json(path / name))
    except ContractError as error:
        raise Failure(ExitCode.CORRUPT_INPUT, f"{name}: {error}", field=name) from error
    if record.rank != rank or record.contract != CONTRACT:
        raise Failure(
            ExitCode.CORRUPT_INPUT,
            f"{name}: it is of rank {record.rank} and contract {record.contract}, expected {rank} and {CONTRACT}",
            field=name,
        )
    return record
