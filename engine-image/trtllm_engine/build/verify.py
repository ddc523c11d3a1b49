"""Whether what is on a volume is what was published."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from trtllm_engine.build.engine_folder import EngineFacts, RankRecord, read_engine, read_record
from trtllm_engine.build.plan_header import HEADER_BYTES, TARGET_BITS, parse_plan_header
from trtllm_engine.checkpoint.safetensors_header import read_header
from trtllm_engine.contract import ExitCode, Toolchain, rank_file
from trtllm_engine.failure import Failure

CHUNK: Final = 8 << 20
"""Bytes read at once while hashing."""


COMMON: Final = ("engine_key", "toolchain", "toolchain_version", "target")
"""What the record of a rank repeats of `config.json`."""


def verify(folder: Path, ranks: Iterable[int]) -> None:
    """Check `config.json` and the engine file of every rank, byte for byte.

    Raises CORRUPT_INPUT whose field is the file at fault: missing, cut, altered, of another engine, or for another GPU.
    """
    facts = read_engine(folder).facts
    for rank in ranks:
        record = verify_rank(folder, rank)
        for name in COMMON:
            if getattr(record, name) != getattr(facts, name):
                raise _corrupt(
                    rank, f"its record says {name} {getattr(record, name)}, but config.json says {getattr(facts, name)}"
                )


def belongs(record: RankRecord, facts: EngineFacts) -> bool:
    """Whether a rank is of this engine."""
    return all(getattr(record, name) == getattr(facts, name) for name in COMMON)


def verify_rank(folder: Path, rank: int) -> RankRecord:
    """Check one rank against its record, and return the record."""
    record = read_record(folder, rank)
    path = folder / rank_file(rank)
    if not path.is_file():
        raise _corrupt(rank, f"{path} does not exist, but its record does")
    if (size := path.stat().st_size) != record.bytes:
        raise _corrupt(rank, f"it has {size} bytes, its record says {record.bytes}")
    if (found := sha256_of(path)) != record.sha256:
        raise _corrupt(
            rank, f"its bytes were altered: sha256 is {found[:12]}..., its record says {record.sha256[:12]}..."
        )
    check_engine_file(path, record, rank)
    return record


def check_engine_file(path: Path, record: RankRecord, rank: int) -> None:
    """Check what the file says about itself, as far as that can be read without a GPU."""
    if record.toolchain is Toolchain.TORCH:
        read_header(path)
    elif record.toolchain is Toolchain.TENSORRT_RTX:
        check_plan(path, record.target.compute_capability, rank)


def check_plan(path: Path, capability: str | None, rank: int) -> None:
    """A plan must be whole and for exactly the wanted GPU."""
    with path.open("rb") as file:
        data = file.read(HEADER_BYTES)
    try:
        header = parse_plan_header(data)
    except ValueError as error:
        raise _corrupt(rank, str(error)) from error
    if header.length != path.stat().st_size:
        raise _corrupt(rank, f"its header says {header.length} bytes, the file has {path.stat().st_size}: it is cut")
    if header.targets != TARGET_BITS.get(capability or "", 0):
        made_for = [name for name, bit in TARGET_BITS.items() if header.targets & bit]
        raise _corrupt(rank, f"it is for compute capability {', '.join(made_for) or 'unknown'}, expected {capability}")


def sha256_of(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            total.update(chunk)
    return total.hexdigest()


def _corrupt(rank: int, message: str) -> Failure:
    name = rank_file(rank)
    return Failure(ExitCode.CORRUPT_INPUT, f"{name}: {message}", field=name)
