"""What a toolchain is, and which ones this image has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Protocol

import trtllm_engine
from trtllm_engine.build.publish import Sink
from trtllm_engine.checkpoint.stored_scheme import StoredScheme
from trtllm_engine.contract import BuildArgs, ExitCode, Target, Toolchain
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.rank import Rank
from trtllm_engine.network.scheme import Scheme
from trtllm_engine.progress import Reporter

DISTRIBUTIONS: Final[Mapping[Toolchain, tuple[str, ...]]] = {
    Toolchain.TORCH: ("torch",),
    Toolchain.TENSORRT_RTX: ("tensorrt_rtx_cu13", "tensorrt_rtx_cu12", "tensorrt_rtx"),
    Toolchain.TENSORRT: ("tensorrt", "tensorrt_cu13", "tensorrt_cu12"),
}
"""Names under which a toolchain's library may be installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildJob:
    """One rank to build."""

    config: DecoderConfig
    model: Path
    args: BuildArgs
    target: Target
    rank: Rank
    scheme: Scheme | None
    """How the matrices of the layers are kept; None: as floating numbers."""
    stored: StoredScheme | None
    """How the checkpoint has them already; None: it is not quantised."""
    inputs: Mapping[str, float] = field(default_factory=dict)
    """Scales of what the matrices multiply, by their names, as far as calibration found them."""


class Builder(Protocol):
    """A toolchain that is there."""

    def check(self, job: BuildJob) -> None:
        """Raise `Failure` for what this toolchain cannot do, before anything is read or written."""

    def build(self, job: BuildJob, sink: Sink, progress: Reporter) -> dict[str, int]:
        """Write the engine and return counts about it; reports the steps weights, network and build."""


def versions() -> dict[str, str]:
    """`toolchain_version()` of every toolchain that this image can run; loads none of them."""
    return {toolchain.value: found for toolchain in DISTRIBUTIONS if (found := _installed(toolchain)) is not None}


def toolchain_version(toolchain: Toolchain) -> str:
    """What of the image can change an engine's bytes. Raises UNSUPPORTED if the toolchain is not there."""
    found = _installed(toolchain)
    if found is None:
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"this image has no toolchain {toolchain.value}; it has {', '.join(versions())}",
            field="toolchain",
        )
    return found


def load_builder(toolchain: Toolchain) -> Builder:
    """Import a toolchain, which takes seconds. Raises UNSUPPORTED if it is not there."""
    toolchain_version(toolchain)
    if toolchain is Toolchain.TORCH:
        from trtllm_engine.build.torch import TorchBuilder

        return TorchBuilder()
    from trtllm_engine.build.tensorrt import TensorRtBuilder

    return TensorRtBuilder(toolchain)


def _installed(toolchain: Toolchain) -> str | None:
    for name in DISTRIBUTIONS.get(toolchain, ()):
        try:
            library = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
        return f"{toolchain.value}-{library}+engine-{trtllm_engine.__version__}"
    return None
