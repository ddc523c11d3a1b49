"""LlmArgs `quant_config`: the precision of weights, activations and cache."""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field

from ..schema import ApiModel
from .bounds import Positive, Share
from .facts import Ref


class QuantAlgo(enum.StrEnum):
    """Schemes for weights and activations."""

    W8A16 = "W8A16"
    W4A16 = "W4A16"
    W4A16_AWQ = "W4A16_AWQ"
    W4A8_AWQ = "W4A8_AWQ"
    W8A16_GPTQ = "W8A16_GPTQ"
    W4A16_GPTQ = "W4A16_GPTQ"
    W8A8_SQ_PER_CHANNEL = "W8A8_SQ_PER_CHANNEL"
    W8A8_SQ_PER_TENSOR_PLUGIN = "W8A8_SQ_PER_TENSOR_PLUGIN"
    W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN = "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN"
    W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN = "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN"
    W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN = "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN"
    W4A8_QSERVE_PER_GROUP = "W4A8_QSERVE_PER_GROUP"
    W4A8_QSERVE_PER_CHANNEL = "W4A8_QSERVE_PER_CHANNEL"
    FP8 = "FP8"
    FP8_PER_CHANNEL_PER_TOKEN = "FP8_PER_CHANNEL_PER_TOKEN"
    FP8_BLOCK_SCALES = "FP8_BLOCK_SCALES"
    MIXED_PRECISION = "MIXED_PRECISION"
    NVFP4 = "NVFP4"
    NO_QUANT = "NO_QUANT"


class KvCacheQuantAlgo(enum.StrEnum):
    """Schemes for the KV cache."""

    FP8 = "FP8"
    INT8 = "INT8"
    NVFP4 = "NVFP4"


class QuantConfig(ApiModel):
    """Precision of weights, activations and cache."""

    quant_algo: Annotated[QuantAlgo | None, Ref(None, "build")] = None
    """Scheme for weights and activations. Unset: the checkpoint's."""
    kv_cache_quant_algo: Annotated[KvCacheQuantAlgo | None, Ref(None, "build")] = None
    """Scheme for the KV cache. Unset: the cache has the type of the activations."""
    group_size: Annotated[Positive | None, Ref(128, "build")] = None
    """Weights that share a scale, for group-wise schemes."""
    smoothquant_val: Annotated[Share | None, Ref(0.5, "build")] = None
    """How much of the range SmoothQuant moves from activations to weights."""
    clamp_val: Annotated[tuple[float, ...] | None, Field(min_length=2, max_length=2), Ref(None, "build")] = None
    """Lowest and highest activation of row-wise FP8."""
    use_meta_recipe: Annotated[bool | None, Ref(False, "build")] = None
    """Whether row-wise FP8 leaves out what Meta's recipe does."""
    has_zero_point: Annotated[bool | None, Ref(False, "build")] = None
    """Whether AWQ or GPTQ weights have zero points."""
    pre_quant_scale: Annotated[bool | None, Ref(False, "build")] = None
    """Whether AWQ scales activations first."""
    exclude_modules: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] | None,
        Field(max_length=1024),
        Ref(None, "build"),
    ] = None
    """Modules that stay as they are, as patterns with * and ?."""
