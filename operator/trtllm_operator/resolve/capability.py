"""What each toolchain can do: the one table that decides, and that refusals quote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trtllm_engine.contract import Toolchain

BFLOAT16_SINCE: Final = (8, 0)
"""Compute capability from which GPUs have bfloat16; TensorRT-RTX refuses it for 7.5."""
MAX_RANKS: Final = 1
"""Ranks of a model that this version builds and serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One row of the table."""

    available: bool = True
    """False: known, and not in this version."""
    targets: tuple[str, ...] = ()
    """Compute capabilities that a plan can be for; empty: an engine is for any device."""
    builds_on_gpu: bool = False
    """Whether a build pod needs the target GPU."""
    serves: bool = False
    """Whether this version can serve an engine, or only build it."""
    serves_on_cpu: bool = False


CAPABILITIES: Final[Mapping[Toolchain, Capability]] = {
    # Kernels are chosen on the GPU itself; the list is what TensorRT's open-source tree compiles for.
    Toolchain.TENSORRT: Capability(targets=("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"), builds_on_gpu=True),
    # The members of tensorrt_rtx.ComputeCapability; every other one is refused by the library.
    Toolchain.TENSORRT_RTX: Capability(targets=("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")),
    Toolchain.TORCH: Capability(serves=True, serves_on_cpu=True),
    Toolchain.TENSORRT_LLM: Capability(available=False),
}


def available() -> tuple[Toolchain, ...]:
    """Toolchains of this version."""
    return tuple(name for name, capability in CAPABILITIES.items() if capability.available)


def parse(compute_capability: str) -> tuple[int, int]:
    """ "8.9" -> (8, 9)."""
    major, minor = compute_capability.split(".")
    return int(major), int(minor)
