"""The top level of LlmArgs: what an engine depends on, and the rest.

A field that is None was not written; a section that is empty was not written either, except where its presence
says something: those are None.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from ..schema import ApiModel
from .bounds import Batch, Beams, Count, Degree, Positive, Text, Tokens
from .build import BuildConfig
from .build_cache import BuildCacheConfig
from .calib import CalibConfig
from .facts import REQUIRED, Ref
from .kv_cache import KvCacheConfig
from .peft import PeftCacheConfig
from .perf_knobs import ExtendedRuntimePerfKnobConfig
from .pytorch import PyTorchConfig
from .quant import QuantConfig
from .scheduler import SchedulerConfig
from .speculative import SpeculativeConfig

Dtype = Literal["auto", "float16", "bfloat16", "float32"]
CP_VALUE_LIMIT: Final = 64


def _number_or_word(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > CP_VALUE_LIMIT:
        raise PydanticCustomError(
            "number_or_word",
            "Input should be an integer or a text of at most {most} characters",
            {"most": CP_VALUE_LIMIT},
        )
    return value


CpValue = Annotated[
    int | str,
    PlainValidator(_number_or_word),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": CP_VALUE_LIMIT,
        }
    ),
]


class BatchingType(enum.StrEnum):
    """When requests join a batch."""

    STATIC = "STATIC"
    INFLIGHT = "INFLIGHT"


class Backend(enum.StrEnum):
    """What runs the model where no engine is built."""

    PYTORCH = "pytorch"
    AUTODEPLOY = "autodeploy"


class EmbeddingParallelMode(enum.StrEnum):
    """How the embedding table is split."""

    NONE = "NONE"
    SHARDING_ALONG_VOCAB = "SHARDING_ALONG_VOCAB"
    SHARDING_ALONG_HIDDEN = "SHARDING_ALONG_HIDDEN"


class EngineArgs(ApiModel):
    """The LlmArgs that an engine may depend on."""

    model: Annotated[str, Field(min_length=1, max_length=512), Ref(REQUIRED, "both")]
    """A repository of the hub (owner/name), or a path below /models, where modelVolume is mounted."""
    revision: Annotated[str | None, Field(min_length=1, max_length=128), Ref(None, "build")] = None
    """Branch, tag or commit of a hub model. Unset: the repository's default branch."""
    dtype: Annotated[Dtype | None, Ref("auto", "build")] = None
    """Type of weights and activations. auto follows the checkpoint; float32 checkpoints become float16."""
    load_format: Annotated[Literal["auto", "dummy"] | None, Ref("auto", "build")] = None
    """Real weights, or random ones."""
    trust_remote_code: Annotated[bool | None, Ref(False, "both")] = None
    """Whether code from the model's repository may run. true is refused in this version."""
    tensor_parallel_size: Annotated[Degree | None, Ref(1, "both")] = None
    """Ranks that share each layer."""
    pipeline_parallel_size: Annotated[Degree | None, Ref(1, "both")] = None
    """Stages that the layers are cut into."""
    context_parallel_size: Annotated[Degree | None, Ref(1, "both")] = None
    """Ranks that share each sequence."""
    gpus_per_node: Annotated[
        int | None, Field(ge=1, le=64), Ref(None, "both", here="as many as there are ranks, on one node")
    ] = None
    """GPUs of a node that one replica may use."""
    moe_tensor_parallel_size: Annotated[Degree | None, Ref(None, "both")] = None
    """Ranks that share each expert. Unset: follows from moeExpertParallelSize, else tensorParallelSize."""
    moe_expert_parallel_size: Annotated[Degree | None, Ref(None, "both")] = None
    """Groups of ranks that the experts are dealt to. Unset: follows from moeTensorParallelSize, else 1."""
    enable_attention_dp: Annotated[bool | None, Ref(False, "both")] = None
    """Whole attention on each tensor rank, for different requests."""
    cp_config: Annotated[dict[str, CpValue] | None, Field(max_length=16), Ref(None, "both")] = None
    """Options of context parallelism, by the reference's names: cp_type, block_size, cp_anchor_size."""
    auto_parallel: Annotated[bool | None, Ref(False, "build")] = None
    """Choose the parallel mapping; the sizes must then be unset."""
    auto_parallel_world_size: Annotated[Degree | None, Ref(1, "build")] = None
    """Ranks that autoParallel lays out."""
    embedding_parallel_mode: Annotated[EmbeddingParallelMode | None, Ref("SHARDING_ALONG_VOCAB", "build")] = None
    """How the embedding table is split over ranks."""
    max_batch_size: Annotated[Batch | None, Ref(None, "runtime", here="buildConfig.maxBatchSize")] = None
    """Sequences that are served together."""
    max_num_tokens: Annotated[Positive | None, Ref(None, "runtime", here="buildConfig.maxNumTokens")] = None
    """Tokens of one step, over all sequences."""
    max_input_len: Annotated[Tokens | None, Ref(1024, "both", here="buildConfig.maxInputLen")] = None
    """Longest prompt, in tokens."""
    max_seq_len: Annotated[Tokens | None, Ref(None, "both", here="buildConfig.maxSeqLen")] = None
    """Longest sequence, prompt and answer, in tokens."""
    max_beam_width: Annotated[Beams | None, Ref(1, "both", here="buildConfig.maxBeamWidth")] = None
    """Beams of a sequence."""
    quant_config: Annotated[QuantConfig, Ref(None, "build")] = QuantConfig()
    """Precision of weights, activations and cache."""
    calib_config: Annotated[CalibConfig, Ref(None, "build")] = CalibConfig()
    """How scales are measured, where quantConfig needs it."""
    build_config: Annotated[BuildConfig, Ref(None, "build")] = BuildConfig()
    """Sizes and options that the engine is built for."""
    speculative_config: Annotated[SpeculativeConfig | None, Ref(None, "both")] = None
    """How tokens are guessed ahead. Unset: they are not."""
    enable_lora: Annotated[bool | None, Ref(False, "build")] = None
    """Build for LoRA adapters."""
    max_lora_rank: Annotated[Positive | None, Ref(None, "build")] = None
    """Largest rank of an adapter; needs enableLora. Unset: buildConfig.loraConfig.maxLoraRank."""
    enable_prompt_adapter: Annotated[bool | None, Ref(False, "build")] = None
    """Build for prompt tuning."""
    max_prompt_adapter_token: Annotated[Count | None, Ref(0, "build")] = None
    """Virtual tokens of a prompt adapter."""
    fast_build: Annotated[bool | None, Ref(False, "build")] = None
    """Build faster, with weights outside the plan."""
    enable_build_cache: Annotated[BuildCacheConfig | None, Ref(False, "build")] = None
    """The reference's cache of engines; an empty section is its true. Engines are shared by content without it."""
    workspace: Annotated[Text | None, Ref(None, "build")] = None
    """Folder for temporary files of the build."""
    enable_tqdm: Annotated[bool | None, Ref(False, "build")] = None
    """Draw a progress bar while building."""


class LlmArgs(EngineArgs):
    """What to serve, how to build it and how to run it."""

    backend: Annotated[Backend | None, Ref(None, "both")] = None
    """What runs the model without an engine. Unset: an engine is built."""
    tokenizer: Annotated[Text | None, Ref(None, "runtime")] = None
    """Tokenizer: a repository of the hub, or a path below /models. Unset: the model's."""
    tokenizer_mode: Annotated[Literal["auto", "slow"] | None, Ref("auto", "runtime")] = None
    """slow takes the tokenizer that is written in Python."""
    tokenizer_revision: Annotated[str | None, Field(min_length=1, max_length=128), Ref(None, "none")] = None
    """Branch, tag or commit of the tokenizer."""
    skip_tokenizer_init: Annotated[bool | None, Ref(False, "runtime")] = None
    """Load no tokenizer: requests carry tokens."""
    kv_cache_config: Annotated[KvCacheConfig, Ref(None, "runtime")] = KvCacheConfig()
    """The pool of cached keys and values."""
    enable_chunked_prefill: Annotated[bool | None, Ref(False, "runtime")] = None
    """Compute long prompts in chunks."""
    scheduler_config: Annotated[SchedulerConfig, Ref(None, "runtime")] = SchedulerConfig()
    """Which requests enter an iteration."""
    batching_type: Annotated[BatchingType | None, Ref(None, "runtime", here="INFLIGHT")] = None
    """When requests join a batch."""
    guided_decoding_backend: Annotated[Literal["xgrammar"] | None, Ref(None, "runtime")] = None
    """What keeps answers to a grammar. Unset: nothing does."""
    max_loras: Annotated[Count | None, Ref(4, "runtime")] = None
    """Adapters in GPU memory; not with peftCacheConfig."""
    max_cpu_loras: Annotated[Count | None, Ref(4, "runtime")] = None
    """Adapters in host memory; not with peftCacheConfig."""
    peft_cache_config: Annotated[PeftCacheConfig | None, Ref(None, "runtime")] = None
    """The cache of LoRA weights. Unset: follows from maxLoras and maxCpuLoras."""
    normalize_log_probs: Annotated[bool | None, Ref(False, "runtime")] = None
    """Divide the log probabilities of beams by their length."""
    gather_generation_logits: Annotated[bool | None, Ref(False, "runtime")] = None
    """Return logits of answers."""
    iter_stats_max_iterations: Annotated[Count | None, Ref(None, "runtime")] = None
    """Iterations whose statistics are kept."""
    request_stats_max_iterations: Annotated[Count | None, Ref(None, "runtime")] = None
    """Iterations whose statistics of requests are kept."""
    extended_runtime_perf_knob_config: Annotated[ExtendedRuntimePerfKnobConfig, Ref(None, "runtime")] = (
        ExtendedRuntimePerfKnobConfig()
    )
    """Low-level switches of the runtime."""
    pytorch_backend_config: Annotated[PyTorchConfig, Ref(None, "runtime")] = PyTorchConfig()
    """Switches of the PyTorch backend; they go to the image as they are."""

    @classmethod
    def of(cls, spec: EngineArgs) -> Self:
        """The arguments in `spec`; what an engine has no field for was not written."""
        given = {name: getattr(spec, name) for name in cls.model_fields if name in spec.model_fields_set}
        return cls.model_construct(_fields_set=set(given), **given)
