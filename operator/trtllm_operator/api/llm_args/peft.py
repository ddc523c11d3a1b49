"""LlmArgs `peft_cache_config`: the cache of LoRA weights."""

from __future__ import annotations

from typing import Annotated

from ..schema import ApiModel
from .bounds import Bytes, Count, Positive, Share, Text
from .facts import Ref


class PeftCacheConfig(ApiModel):
    """The cache of LoRA weights. Written at all, it stands in place of maxLoras and maxCpuLoras."""

    num_host_module_layer: Annotated[Count | None, Ref(0, "runtime")] = None
    """Module layers of rank 1 in host memory."""
    num_device_module_layer: Annotated[Count | None, Ref(0, "runtime")] = None
    """Module layers of rank 1 in GPU memory."""
    optimal_adapter_size: Annotated[Positive | None, Ref(8, "runtime")] = None
    """Rank that pages are made for."""
    max_adapter_size: Annotated[Positive | None, Ref(64, "runtime")] = None
    """Largest rank."""
    num_put_workers: Annotated[Positive | None, Ref(1, "runtime")] = None
    """Threads that fill the host cache."""
    num_ensure_workers: Annotated[Positive | None, Ref(1, "runtime")] = None
    """Threads that copy to the GPU."""
    num_copy_streams: Annotated[Positive | None, Ref(1, "runtime")] = None
    """CUDA streams for these copies."""
    max_pages_per_block_host: Annotated[Positive | None, Ref(24, "runtime")] = None
    """Host pages of one allocation."""
    max_pages_per_block_device: Annotated[Positive | None, Ref(8, "runtime")] = None
    """GPU pages of one allocation."""
    device_cache_percent: Annotated[Share | None, Ref(None, "runtime")] = None
    """Share of the free GPU memory, from 0 to 1."""
    host_cache_size: Annotated[Bytes | None, Ref(None, "runtime")] = None
    """Bytes of host memory."""
    lora_prefetch_dir: Annotated[Text | None, Ref(None, "runtime")] = None
    """Folder of adapters that are loaded at the start."""
