"""LlmArgs `kv_cache_config`: the pool of cached keys and values."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..schema import ApiModel
from .bounds import Bytes, Count, Fraction, Tokens
from .facts import Ref


class KvCacheConfig(ApiModel):
    """The pool of cached keys and values."""

    enable_block_reuse: Annotated[bool | None, Ref(True, "runtime")] = None
    """Share blocks between requests with the same beginning."""
    max_tokens: Annotated[int | None, Field(ge=1, le=2**40), Ref(None, "runtime")] = None
    """Largest number of tokens in the pool."""
    max_attention_window: Annotated[
        tuple[Tokens, ...] | None, Field(min_length=1, max_length=1024), Ref(None, "runtime")
    ] = None
    """Tokens that each layer sees, by layer, repeated as often as there are layers."""
    sink_token_length: Annotated[Tokens | None, Ref(None, "runtime")] = None
    """First tokens that always stay."""
    free_gpu_memory_fraction: Annotated[Fraction | None, Ref(None, "runtime", here="0.9")] = None
    """Share of the free GPU memory that the pool takes; above 0 and below 1."""
    host_cache_size: Annotated[Bytes | None, Ref(None, "runtime")] = None
    """Bytes of host memory for blocks that are moved out."""
    onboard_blocks: Annotated[bool | None, Ref(True, "runtime")] = None
    """Copy moved blocks back before they are reused."""
    cross_kv_cache_fraction: Annotated[Fraction | None, Ref(None, "runtime")] = None
    """Share of the pool for cross attention; above 0 and below 1."""
    secondary_offload_min_priority: Annotated[int | None, Field(ge=0, le=100), Ref(None, "runtime")] = None
    """Lowest retention priority of blocks that are moved out."""
    event_buffer_max_size: Annotated[Count | None, Ref(0, "runtime")] = None
    """Cache events that are kept; 0 keeps none."""
    enable_partial_reuse: Annotated[bool | None, Ref(True, "runtime")] = None
    """Reuse blocks of which only the beginning matches."""
    copy_on_partial_reuse: Annotated[bool | None, Ref(True, "runtime")] = None
    """Copy such a block while another request uses it."""
