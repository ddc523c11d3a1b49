"""What each way to run a model can do: the one table that decides, and that refusals quote."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trtllm_engine.contract import Toolchain

from ..api.llm_args import QuantAlgo

BFLOAT16_SINCE: Final = (8, 0)
"""Compute capability from which GPUs have bfloat16; TensorRT-RTX refuses it for 7.5."""
RTX_FLOAT32_SINCE: Final = (8, 0)
"""Compute capability from which TensorRT-RTX multiplies float32 matrices; for 7.5 its builder refuses them."""
INT4_SINCE: Final = (8, 0)
"""Compute capability from which TensorRT has 4-bit integers; its builder refuses them for 7.5."""
FP8_SINCE: Final = (8, 9)
"""Compute capability from which GPUs multiply in FP8."""
FP4_SINCE: Final = (10, 0)
"""Compute capability from which GPUs multiply in FP4."""
MAX_RANKS: Final = 64
"""Ranks of one replica: a mapping beyond it is a slip, not a plan."""


class Route(enum.StrEnum):
    """How a model comes to run: an engine of a toolchain, or a backend that needs none."""

    TENSORRT = "tensorrt"
    TENSORRT_RTX = "tensorrt_rtx"
    TORCH = "torch"
    TENSORRT_LLM = "tensorrt_llm"
    PYTORCH = "backend pytorch"
    AUTODEPLOY = "backend autodeploy"

    @property
    def own(self) -> bool:
        """Whether this project's network definition and server run it."""
        return self in OWN


OWN: Final = frozenset({Route.TENSORRT, Route.TENSORRT_RTX, Route.TORCH})
IMAGE: Final = frozenset({Route.TENSORRT_LLM, Route.PYTORCH, Route.AUTODEPLOY})
"""Where a TensorRT-LLM image runs it."""
BACKENDS: Final = frozenset({Route.PYTORCH, Route.AUTODEPLOY})
"""Where no engine is built."""
_ENGINE: Final = frozenset({Route.TENSORRT_LLM})
_LLM: Final = frozenset({Route.TENSORRT_LLM, Route.PYTORCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One row of the table."""

    available: bool = True
    """False: known, and not in this version."""
    targets: tuple[str, ...] = ()
    """Compute capabilities that a plan can be for; empty: an engine is for any device."""
    builds_on_gpu: bool = False
    """Whether a build pod needs the target GPU."""
    serves: bool = False
    """Whether this version can serve an engine, or only build it."""
    serves_on_cpu: bool = False


CAPABILITIES: Final[Mapping[Toolchain, Capability]] = {
    # Kernels are chosen on the GPU itself; the list is what TensorRT's open-source tree compiles for.
    Toolchain.TENSORRT: Capability(targets=("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"), builds_on_gpu=True),
    # The members of tensorrt_rtx.ComputeCapability; every other one is refused by the library.
    Toolchain.TENSORRT_RTX: Capability(targets=("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")),
    Toolchain.TORCH: Capability(serves=True, serves_on_cpu=True),
    Toolchain.TENSORRT_LLM: Capability(available=False),
}


SCHEMES: Final[Mapping[str, frozenset[Route]]] = {
    **{algo: _ENGINE for algo in QuantAlgo if algo is not QuantAlgo.NO_QUANT},
    QuantAlgo.W8A16: OWN | _ENGINE,
    QuantAlgo.W4A16: OWN | _ENGINE,
}
"""Which routes can keep weights by which scheme, whether the build rounds them or the checkpoint has them so."""


class Feature(enum.StrEnum):
    """What a spec can ask for beyond a plain model."""

    BEAM_SEARCH = "beam search"
    STREAMINGLLM = "StreamingLLM"
    ATTENTION_WINDOW = "an attention window"
    ATTENTION_SINKS = "attention sinks"
    MEDUSA = "Medusa"
    EAGLE = "Eagle"
    MTP = "multi-token prediction"
    LOOKAHEAD = "Lookahead decoding"
    DRAFT_TOKENS = "draft tokens that come with a request"
    LORA = "LoRA adapters"
    PROMPT_ADAPTER = "prompt adapters"
    MULTIMODAL = "multimodal input"
    QUANTISATION = "quantising weights during the build"
    CACHE_QUANTISATION = "quantising the KV cache"
    ATTENTION_DP = "data-parallel attention"
    CONTEXT_PARALLEL = "context parallelism"
    PROMPT_LOGITS = "logits of prompts"
    ANSWER_LOGITS = "logits of answers"
    WEIGHT_STREAMING = "weight streaming"
    REFIT = "refitting"
    STRIPPED_PLAN = "plans without weights"
    NO_CACHE = "an engine without KV cache"
    DEBUG_OUTPUT = "intermediate results among the outputs"
    TOKENS_ONLY = "requests in tokens instead of text"
    OTHER_TOKENIZER = "another tokenizer than the model's own"
    SLOW_TOKENIZER = "the slow tokenizer, written in Python"
    RANDOM_WEIGHTS = "random weights"
    DRY_RUN = "builds that make no engine"


FEATURES: Final[Mapping[Feature, frozenset[Route]]] = {
    Feature.BEAM_SEARCH: _LLM,
    Feature.STREAMINGLLM: _ENGINE,
    Feature.ATTENTION_WINDOW: _LLM,
    Feature.ATTENTION_SINKS: _ENGINE,
    Feature.MEDUSA: _ENGINE,
    Feature.EAGLE: _LLM,
    Feature.MTP: frozenset({Route.PYTORCH}),
    Feature.LOOKAHEAD: _ENGINE,
    Feature.DRAFT_TOKENS: _ENGINE,
    Feature.LORA: _LLM,
    Feature.PROMPT_ADAPTER: _ENGINE,
    Feature.MULTIMODAL: _ENGINE,
    Feature.QUANTISATION: frozenset[Route]().union(*SCHEMES.values()),
    Feature.CACHE_QUANTISATION: _ENGINE,
    Feature.ATTENTION_DP: _LLM,
    Feature.CONTEXT_PARALLEL: _LLM,
    Feature.PROMPT_LOGITS: _ENGINE,
    Feature.ANSWER_LOGITS: _LLM,
    Feature.WEIGHT_STREAMING: _ENGINE,
    Feature.REFIT: _ENGINE,
    Feature.STRIPPED_PLAN: _ENGINE,
    Feature.NO_CACHE: _ENGINE,
    Feature.DEBUG_OUTPUT: _ENGINE,
    Feature.TOKENS_ONLY: IMAGE,
    Feature.OTHER_TOKENIZER: IMAGE,
    Feature.SLOW_TOKENIZER: IMAGE,
    Feature.RANDOM_WEIGHTS: OWN | IMAGE,
    Feature.DRY_RUN: frozenset(),
}
"""Which routes can do what; no more than what was read in the reference or is built here."""


def able(feature: Feature, value: Any) -> frozenset[Route]:
    """The routes that can do what this value of a field asks for."""
    return SCHEMES[value] if feature is Feature.QUANTISATION else FEATURES[feature]


def schemes(route: Route) -> tuple[str, ...]:
    """By which this route can keep weights."""
    return tuple(scheme for scheme, routes in SCHEMES.items() if route in routes)


def available() -> tuple[Toolchain, ...]:
    """Toolchains of this version."""
    return tuple(name for name, capability in CAPABILITIES.items() if capability.available)


def parse(compute_capability: str) -> tuple[int, int]:
    """ "8.9" -> (8, 9)."""
    major, minor = compute_capability.split(".")
    return int(major), int(minor)
