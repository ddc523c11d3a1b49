"""Rules about TensorRT-LLM's plugins and the layout of its cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..capability import Route
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, invalid, mismatch, rule

ENGINE: Final = frozenset({Route.TENSORRT_LLM})
PLUGINS: Final = "buildConfig.pluginConfig"
FUSED_GEMMS: Final = ("gemmSwigluPlugin", "lowLatencyGemmSwigluPlugin")
FUSION_FAMILIES: Final = frozenset({"llama", "mistral", "gemma2", "gemma3", "gemma"})
"""Families that TensorRT-LLM builds as its Llama or Gemma 2."""


@rule(
    "KVT-1",
    Stage.SPEC,
    Outcome.REFUSES,
    "kvCacheType and pagedKvCache say the same; one follows from the other, and without both the cache is paged.",
    ["buildConfig.kvCacheType", f"{PLUGINS}.pagedKvCache"],
    routes=ENGINE,
)
def cache_layout(case: Case) -> Iterator[Finding]:
    kind, paged = case.value("buildConfig.kvCacheType"), case.plugin("pagedKvCache")
    if kind is not None and paged is not None and paged is not (kind == "PAGED"):
        yield invalid(
            "spec.buildConfig.kvCacheType",
            f"{kind} contradicts spec.{PLUGINS}.pagedKvCache, which says {str(paged).lower()}",
            "remove one of the two: it follows from the other",
        )


@rule(
    "BLD-4",
    Stage.SPEC,
    Outcome.WARNS,
    "A fusion whose precondition is not met is off.",
    [f"{PLUGINS}.{name}" for name in ("reduceFusion", "userBuffer", "normQuantFusion")],
    routes=ENGINE,
)
def fusions(case: Case) -> Iterator[Finding]:
    if case.plugin("reduceFusion") and case.mapping.tp == 1 and not case.wrote("tensorParallelSize"):
        yield caution(f"spec.{PLUGINS}.reduceFusion", "has no effect with one tensor rank; remove it")
    if case.plugin("userBuffer") and not case.wrote(f"{PLUGINS}.reduceFusion"):
        yield caution(f"spec.{PLUGINS}.userBuffer", "has no effect without reduceFusion; set reduceFusion to true")
    if case.plugin("normQuantFusion") and case.quantisation is None:
        yield caution(f"spec.{PLUGINS}.normQuantFusion", "has no effect without quantConfig.quantAlgo NVFP4; remove it")


@rule(
    "BLD-4",
    Stage.SPEC,
    Outcome.REFUSES,
    "A fusion and a value that rules it out are not both written.",
    [f"{PLUGINS}.{name}" for name in ("reduceFusion", "userBuffer", "normQuantFusion")],
    routes=ENGINE,
)
def fusions_ruled_out(case: Case) -> Iterator[Finding]:
    fused, algo = f"spec.{PLUGINS}.reduceFusion", case.quantisation
    if case.plugin("reduceFusion") and case.wrote("tensorParallelSize") and case.mapping.tp == 1:
        yield invalid(fused, "true needs tensor ranks, and spec.tensorParallelSize says 1", "remove one of the two")
    if case.plugin("userBuffer") and case.wrote(f"{PLUGINS}.reduceFusion") and not case.plugin("reduceFusion"):
        yield invalid(f"spec.{PLUGINS}.userBuffer", f"true needs {fused}, which says false", "remove one of the two")
    if case.plugin("normQuantFusion") and case.plugin("reduceFusion"):
        yield invalid(f"spec.{PLUGINS}.normQuantFusion", f"true and {fused} true exclude each other", "remove one")
    elif case.plugin("normQuantFusion") and algo not in (None, "NVFP4"):
        yield invalid(
            f"spec.{PLUGINS}.normQuantFusion",
            f"true needs NVFP4, and spec.quantConfig.quantAlgo says {algo}",
            "remove one of the two",
        )


@rule(
    "BLD-4",
    Stage.FACTS,
    Outcome.WARNS,
    "reduceFusion is for models that are built as Llama or Gemma 2.",
    [f"{PLUGINS}.reduceFusion"],
    routes=ENGINE,
)
def fusion_of_the_family(case: Case) -> Iterator[Finding]:
    if case.plugin("reduceFusion") and case.model.family not in FUSION_FAMILIES:
        yield caution(
            f"spec.{PLUGINS}.reduceFusion", f"has no effect for the architecture {case.model.architecture}; remove it"
        )


@rule(
    "BLD-8",
    Stage.SPEC,
    Outcome.REFUSES,
    "A fused SwiGLU needs the fused MLP and an FP8 model.",
    [f"{PLUGINS}.{name}" for name in FUSED_GEMMS],
    routes=ENGINE,
)
def fused_swiglu(case: Case) -> Iterator[Finding]:
    for name in FUSED_GEMMS:
        if case.plugin(name) not in ("fp8",):
            continue
        if not case.plugin("useFusedMlp"):
            yield invalid(
                f"spec.{PLUGINS}.{name}",
                f"fp8 needs spec.{PLUGINS}.useFusedMlp, which says false",
                "remove one of the two",
            )
        if case.quantisation != "FP8":
            yield invalid(
                f"spec.{PLUGINS}.{name}",
                f"fp8 needs an FP8 model, and spec.quantConfig.quantAlgo says {case.quantisation or 'nothing'}",
                "set quantAlgo to FP8, or remove it",
            )


@rule(
    "BLD-11",
    Stage.FACTS,
    Outcome.REFUSES,
    "ppReduceScatter is for Mixtral.",
    [f"{PLUGINS}.ppReduceScatter"],
    routes=ENGINE,
)
def reduce_scatter(case: Case) -> Iterator[Finding]:
    if case.plugin("ppReduceScatter") and case.model.architecture != "MixtralForCausalLM":
        yield mismatch(
            f"spec.{PLUGINS}.ppReduceScatter",
            f"true is for Mixtral, and {case.spec.model} has the architecture {case.model.architecture}",
            "remove it",
        )


@rule(
    "KVT-2",
    Stage.SPEC,
    Outcome.WARNS,
    "An engine without cache computes prompts only.",
    ["buildConfig.kvCacheType"],
    routes=ENGINE,
)
def without_cache(case: Case) -> Iterator[Finding]:
    if case.value("buildConfig.kvCacheType") == "DISABLED":
        yield caution(
            "spec.buildConfig.kvCacheType", "DISABLED engines compute prompts and no answer; remove it to generate text"
        )


RULES: Final[tuple[Rule, ...]] = (
    cache_layout,
    fusions,
    fusions_ruled_out,
    fusion_of_the_family,
    fused_swiglu,
    reduce_scatter,
    without_cache,
)
