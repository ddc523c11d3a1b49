"""LlmArgs `extended_runtime_perf_knob_config`: low-level switches of the runtime."""

from __future__ import annotations

from typing import Annotated

from ..schema import ApiModel
from .bounds import Count
from .facts import Ref


class ExtendedRuntimePerfKnobConfig(ApiModel):
    """Low-level switches of the runtime."""

    multi_block_mode: Annotated[bool | None, Ref(True, "runtime")] = None
    """Spread the attention of long sequences over blocks of threads."""
    enable_context_fmha_fp32_acc: Annotated[bool | None, Ref(False, "runtime")] = None
    """Accumulate the fused attention of prompts in FP32."""
    cuda_graph_mode: Annotated[bool | None, Ref(False, "runtime")] = None
    """Generate with CUDA graphs."""
    cuda_graph_cache_size: Annotated[Count | None, Ref(0, "runtime")] = None
    """CUDA graphs that are kept."""
