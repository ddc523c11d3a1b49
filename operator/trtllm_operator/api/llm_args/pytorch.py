"""`pytorch_backend_config` of the options file: switches of the PyTorch backend, of every release that has any.

The section goes to the image as it is. Releases renamed switches; both names are here, with their releases.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..schema import ApiModel
from .bounds import Count, Positive, Word
from .facts import Ref


class MoeLoadBalancerConfig(ApiModel):
    """Copies and places of experts."""

    num_slots: Annotated[Positive | None, Field(le=65536)] = None
    """Places for experts, over all ranks."""
    initial_global_assignments: Annotated[
        dict[str, Annotated[tuple[Count, ...], Field(max_length=4096)]] | None, Field(max_length=256)
    ] = None
    """Expert in each place, by layer."""
    layer_updates_per_iter: Count | None = None
    """Layers that may change in an iteration; 0 never changes any."""


class PyTorchConfig(ApiModel):
    """Switches of the PyTorch backend."""

    use_cuda_graph: Annotated[bool | None, Ref(False, "runtime", versions="0.18+")] = None
    """Generate with CUDA graphs."""
    cuda_graph_batch_sizes: Annotated[
        tuple[Positive, ...] | None, Field(max_length=1024), Ref(None, "runtime", versions="0.18+")
    ] = None
    """Batch sizes that get a CUDA graph; not with another cudaGraphMaxBatchSize."""
    cuda_graph_max_batch_size: Annotated[Count | None, Ref(0, "runtime", versions="0.18+")] = None
    """Largest batch size that gets a CUDA graph; 0 derives it."""
    cuda_graph_padding_enabled: Annotated[bool | None, Ref(False, "runtime", versions="0.18+")] = None
    """Fill a batch up to the next size that has a graph."""
    enable_overlap_scheduler: Annotated[bool | None, Ref(False, "runtime", versions="0.18-0.19")] = None
    """Schedule on the host while the GPU computes; until 0.19."""
    disable_overlap_scheduler: Annotated[bool | None, Ref(False, "runtime", versions="0.20+")] = None
    """Do not schedule while the GPU computes; from 0.20, where that is on."""
    moe_max_num_tokens: Annotated[Positive | None, Ref(None, "runtime", versions="0.20+")] = None
    """Tokens above which the call of the experts is split."""
    moe_load_balancer: Annotated[MoeLoadBalancerConfig | None, Ref(None, "runtime", versions="0.20+")] = None
    """Copies and places of experts."""
    attn_backend: Annotated[Word | None, Ref("TRTLLM", "runtime", versions="0.18+")] = None
    """Attention kernels: TRTLLM, VANILLA, FLASHINFER or what the image knows."""
    moe_backend: Annotated[Word | None, Ref("CUTLASS", "runtime", versions="0.20+")] = None
    """Kernels of experts: CUTLASS, TRTLLM, WIDEEP or what the image knows."""
    mixed_decoder: Annotated[bool | None, Ref(False, "runtime", versions="0.19")] = None
    """Sampling parameters of each request in one batch; until 0.19."""
    mixed_sampler: Annotated[bool | None, Ref(False, "runtime", versions="0.20+")] = None
    """Sampling parameters of each request in one batch; from 0.20."""
    enable_trtllm_decoder: Annotated[bool | None, Ref(False, "runtime", versions="0.19")] = None
    """Sample in C++; until 0.19."""
    enable_trtllm_sampler: Annotated[bool | None, Ref(False, "runtime", versions="0.20+")] = None
    """Sample in C++; from 0.20."""
    kv_cache_dtype: Annotated[Word | None, Ref("auto", "runtime", versions="0.18+")] = None
    """Type of the KV cache: auto, fp8 or what the image knows."""
    use_kv_cache: Annotated[bool | None, Ref(True, "runtime", versions="0.19")] = None
    """Keep keys and values at all."""
    enable_iter_perf_stats: Annotated[bool | None, Ref(False, "runtime", versions="0.19+")] = None
    """Statistics of each iteration."""
    enable_iter_req_stats: Annotated[bool | None, Ref(False, "runtime", versions="0.20+")] = None
    """Statistics of each request in each iteration; needs enableIterPerfStats."""
    print_iter_log: Annotated[bool | None, Ref(False, "runtime", versions="0.18+")] = None
    """Log each iteration; true by default before 0.19."""
    torch_compile_enabled: Annotated[bool | None, Ref(False, "runtime", versions="0.18+")] = None
    """Compile the model."""
    torch_compile_fullgraph: Annotated[bool | None, Ref(False, "runtime", versions="0.18+")] = None
    """Compile it as one graph; true by default from 0.20."""
    torch_compile_inductor_enabled: Annotated[bool | None, Ref(False, "runtime", versions="0.18+")] = None
    """Compile it with Inductor."""
    torch_compile_piecewise_cuda_graph: Annotated[bool | None, Ref(False, "runtime", versions="0.20+")] = None
    """CUDA graphs between the parts that cannot have one."""
    torch_compile_enable_userbuffers: Annotated[bool | None, Ref(True, "runtime", versions="0.19+")] = None
    """Communicate without copies; needs torchCompileEnabled."""
    autotuner_enabled: Annotated[bool | None, Ref(True, "runtime", versions="0.20+")] = None
    """Choose kernels while warming up."""
    enable_layerwise_nvtx_marker: Annotated[bool | None, Ref(False, "runtime", versions="0.19+")] = None
    """Mark layers for a profiler."""
    load_format: Annotated[Literal["auto", "dummy"] | None, Ref("auto", "runtime", versions="0.19+")] = None
    """Real weights, or random ones."""
    enable_min_latency: Annotated[bool | None, Ref(False, "runtime", versions="0.20+")] = None
    """Least latency (Llama 4)."""
    allreduce_strategy: Annotated[Word | None, Ref("AUTO", "runtime", versions="0.20+")] = None
    """How ranks sum."""
    stream_interval: Annotated[Positive | None, Ref(1, "runtime", versions="0.20+")] = None
    """Iterations between two parts of a streamed answer."""
