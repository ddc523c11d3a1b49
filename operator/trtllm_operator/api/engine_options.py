"""How an engine is built and kept: the section `engine` of an LLMDeployment, the top level of an LLMEngine."""

from __future__ import annotations

import enum
import re
from typing import Final

from pydantic import Field

from trtllm_engine.contract import Toolchain

from .pods import Resources, Storage
from .schema import ApiModel

RETENTION_PATTERN: Final = r"^(Keep|Delete|[1-9][0-9]{0,8}[smhd])$"


class Device(enum.StrEnum):
    """What a server computes on."""

    AUTO = "auto"
    CUDA = "cuda"
    CPU = "cpu"


class Target(ApiModel):
    """The GPU that an engine is for."""

    compute_capability: str | None = Field(default=None, max_length=8, pattern=r"^[1-9][0-9]?\.[0-9]$")
    """CUDA compute capability, for example "8.9" (quoted). Needed by the toolchains tensorrt and tensorrt_rtx."""
    gpu_product: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    )
    """Value of the node label nvidia.com/gpu.product: all pods run only on such nodes, so volumes are there too."""


class EngineOptions(ApiModel):
    """How an engine is built and kept."""

    toolchain: Toolchain | None = None
    """What builds the engine: tensorrt, tensorrt_rtx, torch or tensorrt_llm. Default: the operator's, which is
    torch unless the installation says otherwise."""
    image: str | None = Field(default=None, min_length=1, max_length=512)
    """Image that fetches and builds. Default: the operator's."""
    target: Target = Target()
    """The GPU that the engine is for."""
    storage: Storage = Storage()
    """The claim that holds the engine."""
    retention: str | None = Field(default=None, max_length=10, pattern=RETENTION_PATTERN)
    """How long an engine that nobody refers to is kept: a number and s, m, h or d; Keep; or Delete. Default: the
    operator's (7d). Engines that you created are never deleted."""
    resources: Resources = Resources()
    """Host resources of each build pod. Default: the operator's requests."""
    deadline_seconds: int | None = Field(default=None, ge=60, le=604800)
    """Seconds that the build may take. Default: the operator's (21600)."""

    def retention_seconds(self, default: int) -> int | None:
        """How long an unused engine is kept; None: for ever. `default` stands in for a field that was not written."""
        return retention_seconds(self.retention, default)


def retention_seconds(written: str | None, default: int) -> int | None:
    """Seconds of a retention as it is written; None: for ever. What is none, like nothing at all, is the default."""
    if written is None or re.fullmatch(RETENTION_PATTERN, written) is None:
        return default
    if written in ("Keep", "Delete"):
        return None if written == "Keep" else 0
    return int(written[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[written[-1]]
