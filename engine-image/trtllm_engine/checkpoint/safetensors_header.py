"""The header of a safetensors file, read and checked without loading a tensor.

Format: https://huggingface.co/docs/safetensors, "Format": a little-endian u64 with the header's length, the header as
JSON, then the tensors' bytes, which the header's offsets cover without holes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure

LENGTH: Final = struct.Struct("<Q")
MAX_HEADER_BYTES: Final = 100_000_000
"""What the format's reference implementation accepts."""

ITEM_BITS: Final[Mapping[str, int]] = {
    "F64": 64,
    "I64": 64,
    "U64": 64,
    "F32": 32,
    "I32": 32,
    "U32": 32,
    "F16": 16,
    "BF16": 16,
    "I16": 16,
    "U16": 16,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "I8": 8,
    "U8": 8,
    "BOOL": 8,
    "F4": 4,
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor is; `start` and `end` count from the end of the header."""

    dtype: str
    """As the format spells it: F32, BF16, ..."""
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Header:
    """The tensors of one file, and the bytes that said so."""

    raw: bytes
    tensors: Mapping[str, TensorInfo]


def read_header(path: Path) -> Header:
    """Read and check the header; the file's size must be exactly what it says.

    Raises CORRUPT_INPUT naming the file, and the tensor where one is at fault.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(LENGTH.size)
        if len(prefix) < LENGTH.size:
            raise _corrupt(path, f"{size} bytes are too few for a safetensors file")
        (length,) = LENGTH.unpack(prefix)
        if length > MAX_HEADER_BYTES or LENGTH.size + length > size:
            raise _corrupt(path, f"the header claims {length} bytes but the file has {size}: cut, or not safetensors")
        raw = file.read(length)
    try:
        entries = json.loads(raw)
    except ValueError as error:
        raise _corrupt(path, f"the header is not JSON: {error}") from error
    if not isinstance(entries, dict):
        raise _corrupt(path, "the header is not a JSON object")
    tensors = {str(name): _tensor(path, str(name), entry) for name, entry in entries.items() if name != "__metadata__"}
    _check_layout(path, tensors, size - LENGTH.size - length)
    return Header(raw, tensors)


def _tensor(path: Path, name: str, entry: object) -> TensorInfo:
    if not isinstance(entry, dict):
        raise _corrupt(path, f"tensor {name}: its entry is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in ITEM_BITS:
        raise _corrupt(path, f"tensor {name}: unknown dtype {dtype!r}")
    if not _sizes(shape):
        raise _corrupt(path, f"tensor {name}: shape {shape!r} is no list of sizes")
    if not _sizes(offsets) or len(offsets) != 2:
        raise _corrupt(path, f"tensor {name}: data_offsets {offsets!r} is no pair of offsets")
    start, end = offsets
    info = TensorInfo(dtype, tuple(shape), start, end)
    if info.elements * ITEM_BITS[dtype] != info.bytes * 8:
        raise _corrupt(path, f"tensor {name}: {info.bytes} bytes do not hold {dtype} of shape {list(info.shape)}")
    return info


def _sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_layout(path: Path, tensors: Mapping[str, TensorInfo], available: int) -> None:
    for name, info in tensors.items():
        if info.end > available:
            raise _corrupt(
                path, f"tensor {name}: its data ends at byte {info.end} but the file has {available}: the file is cut"
            )
    position = 0
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if info.start != position:
            raise _corrupt(path, f"tensor {name}: its data starts at byte {info.start}, expected {position}")
        position = info.end
    if position != available:
        raise _corrupt(path, f"{available - position} bytes follow the last tensor")


def _corrupt(path: Path, message: str) -> Failure:
    return Failure(ExitCode.CORRUPT_INPUT, f"{path.name}: {message}", field=path.name)
