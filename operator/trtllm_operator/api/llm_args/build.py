"""LlmArgs `build_config`: the sizes and options that an engine is built for."""

from __future__ import annotations

import enum
from typing import Annotated, Literal

from ..schema import ApiModel
from .bounds import Batch, Beams, Count, Positive, Text, Tokens
from .facts import Ref
from .lora import LoraConfig
from .plugin import PluginConfig


class KvCacheType(enum.StrEnum):
    """How the KV cache is laid out."""

    CONTINUOUS = "CONTINUOUS"
    PAGED = "PAGED"
    DISABLED = "DISABLED"


class SpeculativeDecodingMode(enum.StrEnum):
    """How an engine speculates."""

    NONE = "NONE"
    DRAFT_TOKENS_EXTERNAL = "DRAFT_TOKENS_EXTERNAL"
    MEDUSA = "MEDUSA"
    LOOKAHEAD_DECODING = "LOOKAHEAD_DECODING"
    EXPLICIT_DRAFT_TOKENS = "EXPLICIT_DRAFT_TOKENS"
    EAGLE = "EAGLE"


class BuildConfig(ApiModel):
    """Sizes and options that an engine is built for."""

    max_input_len: Annotated[Tokens | None, Ref(1024, "build", here="as long as a sequence may be")] = None
    """Longest prompt, in tokens."""
    max_seq_len: Annotated[Tokens | None, Ref(None, "build", here="the model's, at most 8192")] = None
    """Longest sequence, prompt and answer, in tokens."""
    opt_batch_size: Annotated[Batch | None, Ref(8, "build")] = None
    """Batch size that is made fastest."""
    max_batch_size: Annotated[Batch | None, Ref(2048, "build", here="what fits")] = None
    """Sequences that are computed together."""
    max_beam_width: Annotated[Beams | None, Ref(1, "build")] = None
    """Beams of a sequence."""
    max_num_tokens: Annotated[Positive | None, Ref(8192, "build")] = None
    """Tokens of one step, over all sequences."""
    opt_num_tokens: Annotated[Positive | None, Ref(None, "build")] = None
    """Tokens of a step that is made fastest. Unset: follows from batch and beams."""
    max_prompt_embedding_table_size: Annotated[Count | None, Ref(0, "build")] = None
    """Rows of virtual tokens, for prompt tuning and multimodal input."""
    kv_cache_type: Annotated[KvCacheType | None, Ref(None, "build")] = None
    """Layout of the KV cache. Unset: follows pagedKvCache, else PAGED."""
    gather_context_logits: Annotated[bool | None, Ref(False, "build")] = None
    """Return logits of prompts; the cache is then not reused."""
    gather_generation_logits: Annotated[bool | None, Ref(False, "build")] = None
    """Return logits of answers."""
    strongly_typed: Annotated[bool | None, Ref(True, "build")] = None
    """Types as written, not as TensorRT finds fastest."""
    force_num_profiles: Annotated[Positive | None, Ref(None, "build")] = None
    """Largest number of optimisation profiles, for debugging."""
    profiling_verbosity: Annotated[
        Literal["layer_names_only", "detailed", "none"] | None, Ref("layer_names_only", "build")
    ] = None
    """What a profiler sees of the layers."""
    enable_debug_output: Annotated[bool | None, Ref(False, "build")] = None
    """Mark intermediate results as outputs."""
    max_draft_len: Annotated[Count | None, Ref(0, "build")] = None
    """Draft tokens of a step; set by speculativeConfig."""
    speculative_decoding_mode: Annotated[SpeculativeDecodingMode | None, Ref("NONE", "build")] = None
    """How the engine speculates; set by speculativeConfig."""
    use_refit: Annotated[bool | None, Ref(False, "build")] = None
    """Weights can be exchanged."""
    input_timing_cache: Annotated[Text | None, Ref(None, "build")] = None
    """File with earlier timings."""
    output_timing_cache: Annotated[Text | None, Ref("model.cache", "build")] = None
    """File for timings."""
    lora_config: Annotated[LoraConfig, Ref(None, "build")] = LoraConfig()
    """Adapters that the engine is built for."""
    weight_sparsity: Annotated[bool | None, Ref(False, "build")] = None
    """Allow kernels for sparse weights."""
    weight_streaming: Annotated[bool | None, Ref(False, "build")] = None
    """Stream weights from host memory."""
    plugin_config: Annotated[PluginConfig, Ref(None, "build")] = PluginConfig()
    """Kernels of the network."""
    use_strip_plan: Annotated[bool | None, Ref(False, "build")] = None
    """Leave weights out of the plan."""
    max_encoder_input_len: Annotated[Tokens | None, Ref(1024, "build")] = None
    """Longest input of an encoder, in tokens."""
    dry_run: Annotated[bool | None, Ref(False, "build")] = None
    """Stop before compiling."""
    visualize_network: Annotated[Text | None, Ref(None, "build")] = None
    """File for a picture of the network."""
    monitor_memory: Annotated[bool | None, Ref(False, "build")] = None
    """Log the memory of the build."""
    use_mrope: Annotated[bool | None, Ref(False, "build")] = None
    """Multimodal rotary embedding."""
