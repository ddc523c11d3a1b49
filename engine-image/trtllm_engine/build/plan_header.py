"""The first 64 bytes of a TensorRT for RTX plan.

NVIDIA documents only the header's size (`Runtime.engine_header_size`); the fields below were read off plans for ten
target settings. They tell a cut file or one for another GPU without a driver, which deserialising would need.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HEADER_BYTES: Final = 64
MAGIC: Final = b"vtrt"
TARGET_BITS: Final[Mapping[str, int]] = {"7.5": 1, "8.0": 2, "8.6": 4, "8.9": 8, "12.0": 16, "12.1": 32}
"""Bit of each compute capability in the target mask."""


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """`length` is the size of the whole file, `targets` a mask of `TARGET_BITS`."""

    length: int
    targets: int


def parse_plan_header(data: bytes) -> PlanHeader:
    """Raises ValueError saying what is wrong."""
    if len(data) < HEADER_BYTES:
        raise ValueError(f"{len(data)} bytes are too few for a plan's header of {HEADER_BYTES}")
    if data[0:4] != MAGIC or data[28:32] != MAGIC:
        raise ValueError("it does not begin like a TensorRT plan")
    (length,) = struct.unpack_from("<Q", data, 16)
    (targets,) = struct.unpack_from("<I", data, 32)
    return PlanHeader(length, targets)
