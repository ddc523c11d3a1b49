"""What becomes of each field of LlmArgs on each route: it reaches a pod, it is refused, or it has no effect.

Never silently ignored: a field without effect is a caution with the reason.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .capability import BACKENDS, FEATURES, IMAGE, OWN, Feature, Route, schemes
from .options import ROOT


class Fate(enum.StrEnum):
    """What becomes of a field."""

    REACHES = "reaches a pod"
    REFUSED = "is refused"
    NO_EFFECT = "has no effect"


@dataclass(frozen=True, slots=True)
class Asks:
    """A field that asks for a feature with some of its values."""

    path: str
    feature: Feature
    when: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class NoEffect:
    """Fields that change nothing on some routes. A path that ends in `.*` is everything below it."""

    routes: frozenset[Route]
    why: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A feature that a spec asks for, where, and with which value."""

    path: str
    feature: Feature
    value: Any


def _always(_: Any) -> bool:
    return True


def _above(least: int) -> Callable[[Any], bool]:
    return lambda value: bool(value > least)


def _is(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def _is_not(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value not in values


ASKS: Final = (
    Asks("maxBeamWidth", Feature.BEAM_SEARCH, _above(1)),
    Asks("buildConfig.maxBeamWidth", Feature.BEAM_SEARCH, _above(1)),
    Asks("buildConfig.pluginConfig.streamingllm", Feature.STREAMINGLLM, bool),
    Asks("kvCacheConfig.maxAttentionWindow", Feature.ATTENTION_WINDOW, _always),
    Asks("kvCacheConfig.sinkTokenLength", Feature.ATTENTION_SINKS, _always),
    Asks("speculativeConfig.decodingType", Feature.MEDUSA, _is("Medusa")),
    Asks("speculativeConfig.decodingType", Feature.EAGLE, _is("Eagle")),
    Asks("speculativeConfig.decodingType", Feature.MTP, _is("MTP")),
    Asks("speculativeConfig.decodingType", Feature.LOOKAHEAD, _is("Lookahead")),
    Asks("buildConfig.speculativeDecodingMode", Feature.MEDUSA, _is("MEDUSA")),
    Asks("buildConfig.speculativeDecodingMode", Feature.EAGLE, _is("EAGLE")),
    Asks("buildConfig.speculativeDecodingMode", Feature.LOOKAHEAD, _is("LOOKAHEAD_DECODING")),
    Asks(
        "buildConfig.speculativeDecodingMode",
        Feature.DRAFT_TOKENS,
        _is("DRAFT_TOKENS_EXTERNAL", "EXPLICIT_DRAFT_TOKENS"),
    ),
    Asks("buildConfig.maxDraftLen", Feature.DRAFT_TOKENS, _above(0)),
    Asks("enableLora", Feature.LORA, bool),
    Asks("buildConfig.pluginConfig.loraPlugin", Feature.LORA, _is_not("disable")),
    Asks("buildConfig.pluginConfig.doraPlugin", Feature.LORA, bool),
    Asks("buildConfig.loraConfig.loraDir", Feature.LORA, bool),
    Asks("enablePromptAdapter", Feature.PROMPT_ADAPTER, bool),
    Asks("buildConfig.maxPromptEmbeddingTableSize", Feature.PROMPT_ADAPTER, _above(0)),
    Asks("buildConfig.useMrope", Feature.MULTIMODAL, bool),
    Asks("quantConfig.quantAlgo", Feature.QUANTISATION, _is_not("NO_QUANT")),
    Asks("quantConfig.kvCacheQuantAlgo", Feature.CACHE_QUANTISATION, _always),
    Asks("enableAttentionDp", Feature.ATTENTION_DP, bool),
    Asks("contextParallelSize", Feature.CONTEXT_PARALLEL, _above(1)),
    Asks("cpConfig", Feature.CONTEXT_PARALLEL, bool),
    Asks("buildConfig.gatherContextLogits", Feature.PROMPT_LOGITS, bool),
    Asks("buildConfig.gatherGenerationLogits", Feature.ANSWER_LOGITS, bool),
    Asks("gatherGenerationLogits", Feature.ANSWER_LOGITS, bool),
    Asks("buildConfig.weightStreaming", Feature.WEIGHT_STREAMING, bool),
    Asks("buildConfig.useRefit", Feature.REFIT, bool),
    Asks("buildConfig.useStripPlan", Feature.STRIPPED_PLAN, bool),
    Asks("buildConfig.kvCacheType", Feature.NO_CACHE, _is("DISABLED")),
    Asks("buildConfig.enableDebugOutput", Feature.DEBUG_OUTPUT, bool),
    Asks("buildConfig.dryRun", Feature.DRY_RUN, bool),
    Asks("skipTokenizerInit", Feature.TOKENS_ONLY, bool),
    Asks("tokenizer", Feature.OTHER_TOKENIZER, _always),
    Asks("tokenizerMode", Feature.SLOW_TOKENIZER, _is("slow")),
    Asks("loadFormat", Feature.RANDOM_WEIGHTS, _is("dummy")),
)
"""A field of this table is refused where its feature is not possible, and asks for nothing with any other value."""

WITH_FEATURE: Final[Mapping[str, str]] = {"speculativeConfig.*": "speculativeConfig.decodingType"}
"""Sections that come only with a field of `ASKS`, which decides about all of them."""

GROUP_SIZE: Final = "quantConfig.groupSize"
SCHEME: Final = (
    "quantConfig.smoothquantVal",
    "quantConfig.clampVal",
    "quantConfig.useMetaRecipe",
    "quantConfig.hasZeroPoint",
    "quantConfig.preQuantScale",
    "quantConfig.excludeModules",
)
"""Details of schemes of quantConfig.quantAlgo that have activations, zero points or exceptions."""
BUILD: Final = (
    "fastBuild",
    "enableTqdm",
    "buildConfig.stronglyTyped",
    "buildConfig.forceNumProfiles",
    "buildConfig.profilingVerbosity",
    "buildConfig.inputTimingCache",
    "buildConfig.outputTimingCache",
    "buildConfig.weightSparsity",
    "buildConfig.maxEncoderInputLen",
    "buildConfig.visualizeNetwork",
    "buildConfig.monitorMemory",
)
"""How TensorRT-LLM builds."""

ALL: Final = OWN | IMAGE
NO_EFFECT: Final = (
    NoEffect(ALL, "the reference takes it and never reads it", ("tokenizerRevision",)),
    NoEffect(
        ALL,
        "the reference takes it and does not pass it on to its executor",
        ("iterStatsMaxIterations", "requestStatsMaxIterations"),
    ),
    NoEffect(ALL, "engines are shared by their content, without a cache to be set up", ("enableBuildCache.*",)),
    NoEffect(ALL, "a pod that builds has a volume of its own for temporary files", ("workspace",)),
    NoEffect(
        OWN,
        "its schemes keep every matrix of the layers, without zero points, and leave activations alone",
        SCHEME,
    ),
    NoEffect(OWN, "its schemes follow from the weights alone: nothing is calibrated", ("calibConfig.*",)),
    NoEffect(BACKENDS, "nothing is calibrated: no build quantises", ("calibConfig.*",)),
    NoEffect(
        BACKENDS,
        "no engine is built, and the checkpoint's own quantisation is taken",
        (GROUP_SIZE, *SCHEME),
    ),
    NoEffect(
        OWN,
        "it belongs to enableLora, which this toolchain does not have",
        (
            "maxLoraRank",
            "maxLoras",
            "maxCpuLoras",
            "peftCacheConfig.*",
            "buildConfig.loraConfig.*",
        ),
    ),
    NoEffect(OWN, "it belongs to enablePromptAdapter, which this toolchain does not have", ("maxPromptAdapterToken",)),
    NoEffect(
        OWN,
        "the server has one fixed place in its cache for each sequence of a batch",
        (
            "kvCacheConfig.*",
            "buildConfig.kvCacheType",
            "extendedRuntimePerfKnobConfig.*",
        ),
    ),
    NoEffect(
        OWN,
        "the server decides itself which requests enter a step and how prompts are cut",
        (
            "enableChunkedPrefill",
            "schedulerConfig.*",
            "batchingType",
            "maxNumTokens",
            "buildConfig.maxNumTokens",
            "buildConfig.optNumTokens",
            "buildConfig.optBatchSize",
        ),
    ),
    NoEffect(OWN, "the server keeps answers to a schema without being told", ("guidedDecodingBackend",)),
    NoEffect(OWN, "it is about beams, and there is one", ("normalizeLogProbs",)),
    NoEffect(OWN, "tensor ranks always share the vocabulary", ("embeddingParallelMode",)),
    NoEffect(OWN, "the network has no TensorRT-LLM plugins", ("buildConfig.pluginConfig.*",)),
    NoEffect(
        OWN,
        "it tunes TensorRT-LLM's build, which this toolchain does not use",
        BUILD,
    ),
    NoEffect(
        OWN | frozenset({Route.TENSORRT_LLM}), "it is for backend pytorch or autodeploy", ("pytorchBackendConfig.*",)
    ),
    NoEffect(
        BACKENDS,
        "no engine is built",
        (
            *BUILD,
            "embeddingParallelMode",
            "buildConfig.optBatchSize",
            "buildConfig.optNumTokens",
            "buildConfig.kvCacheType",
            "buildConfig.pluginConfig.*",
            "extendedRuntimePerfKnobConfig.*",
        ),
    ),
)


def fate(path: str, route: Route) -> tuple[Fate, str | None]:
    """What becomes of the field at `path` (below `spec`), and why, or with which values, if it is not simply taken."""
    asks = [ask for ask in ASKS if ask.path == path]
    if asks and not any(route in FEATURES[ask.feature] for ask in asks):
        return Fate.REFUSED, " and ".join(sorted({ask.feature.value for ask in asks}))
    for section, deciding in WITH_FEATURE.items():
        if path != deciding and _matches(section, path):
            return fate(deciding, route)
    if any(ask.feature is Feature.QUANTISATION for ask in asks) and route.own:
        return Fate.REACHES, ", ".join(schemes(route))
    if asks and not route.own:
        return Fate.REACHES, None
    if (why := no_effect(path, route)) is not None:
        return Fate.NO_EFFECT, why
    return Fate.REACHES, None


def no_effect(path: str, route: Route) -> str | None:
    """Why the field at `path` changes nothing on this route; None: it does, or it is refused."""
    if any(ask.path == path for ask in ASKS):
        return None
    rows = (row for row in NO_EFFECT if route in row.routes)
    return next((row.why for row in rows if any(_matches(pattern, path) for pattern in row.paths)), None)


def asks(written: Mapping[str, Any]) -> Iterator[Ask]:
    """Every feature that the written values ask for, in the order of the table."""
    known = dict(written)
    for row in ASKS:
        path = f"{ROOT}.{row.path}"
        if path in known and row.when(known[path]):
            yield Ask(path=path, feature=row.feature, value=known[path])


def _matches(pattern: str, path: str) -> bool:
    section = pattern.removesuffix(".*")
    return path == section or (pattern.endswith(".*") and path.startswith(section + "."))
