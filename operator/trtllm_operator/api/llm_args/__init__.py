"""TensorRT-LLM's `LlmArgs`, one for one: every field that a resource can hold, by the reference's own names.

The resource spells them in camelCase. One file per section of the reference; `facts` says what the reference
has beyond types.
"""

from .arguments import Backend, BatchingType, Dtype, EmbeddingParallelMode, EngineArgs, LlmArgs
from .build import BuildConfig, KvCacheType, SpeculativeDecodingMode
from .build_cache import BuildCacheConfig
from .calib import CalibConfig
from .facts import (
    REQUIRED,
    FieldFact,
    Phase,
    Ref,
    allowed_values,
    iter_fields,
    phase,
    ref,
    reference_default,
    reference_name,
)
from .kv_cache import KvCacheConfig
from .lora import LoraConfig
from .peft import PeftCacheConfig
from .perf_knobs import ExtendedRuntimePerfKnobConfig
from .plugin import OFF, PluginConfig
from .pytorch import MoeLoadBalancerConfig, PyTorchConfig
from .quant import KvCacheQuantAlgo, QuantAlgo, QuantConfig
from .scheduler import CapacitySchedulerPolicy, ContextChunkingPolicy, DynamicBatchConfig, SchedulerConfig
from .speculative import (
    DecodingBaseConfig,
    EagleDecodingConfig,
    LookaheadDecodingConfig,
    MedusaDecodingConfig,
    MTPDecodingConfig,
    SpeculativeConfig,
)

__all__ = [
    "OFF",
    "REQUIRED",
    "Backend",
    "BatchingType",
    "BuildCacheConfig",
    "BuildConfig",
    "CalibConfig",
    "CapacitySchedulerPolicy",
    "ContextChunkingPolicy",
    "DecodingBaseConfig",
    "Dtype",
    "DynamicBatchConfig",
    "EagleDecodingConfig",
    "EmbeddingParallelMode",
    "EngineArgs",
    "ExtendedRuntimePerfKnobConfig",
    "FieldFact",
    "KvCacheConfig",
    "KvCacheQuantAlgo",
    "KvCacheType",
    "LlmArgs",
    "LookaheadDecodingConfig",
    "LoraConfig",
    "MTPDecodingConfig",
    "MedusaDecodingConfig",
    "MoeLoadBalancerConfig",
    "PeftCacheConfig",
    "Phase",
    "PluginConfig",
    "PyTorchConfig",
    "QuantAlgo",
    "QuantConfig",
    "Ref",
    "SchedulerConfig",
    "SpeculativeConfig",
    "SpeculativeDecodingMode",
    "allowed_values",
    "iter_fields",
    "phase",
    "ref",
    "reference_default",
    "reference_name",
]
