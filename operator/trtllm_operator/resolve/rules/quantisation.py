"""Rules about quantisation by the build."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..capability import Route
from ..quantisation import GROUP_WISE, WITHOUT_CALIBRATION
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, invalid, rule

ENGINE: Final = frozenset({Route.TENSORRT_LLM})


@rule(
    "QNT-1",
    Stage.SPEC,
    Outcome.WARNS,
    "A scheme whose scales follow from the weights alone is not calibrated.",
    ["calibConfig", "quantConfig.quantAlgo"],
    routes=ENGINE,
)
def calibration_that_does_not_happen(case: Case) -> Iterator[Finding]:
    calibrates = case.cache_quantisation is not None or (
        case.quantisation is not None and case.quantisation not in WITHOUT_CALIBRATION
    )
    for path in case.written:
        if path.startswith("spec.calibConfig.") and not calibrates:
            why = f"{case.quantisation} needs no calibration" if case.quantisation else "nothing is quantised"
            yield caution(path, f"has no effect: {why}; remove it")


@rule(
    "QNT-2",
    Stage.SPEC,
    Outcome.REFUSES,
    "A scheme for the cache alone is FP8.",
    ["quantConfig.kvCacheQuantAlgo"],
    routes=ENGINE,
)
def cache_scheme_alone(case: Case) -> Iterator[Finding]:
    if case.quantisation is None and case.cache_quantisation == "NVFP4":
        yield invalid(
            "spec.quantConfig.kvCacheQuantAlgo",
            "NVFP4 is not possible for the cache of weights that are not quantised",
            "use FP8, or set spec.quantConfig.quantAlgo to NVFP4",
        )


@rule(
    "QNT-5",
    Stage.SPEC,
    Outcome.WARNS,
    "A group size means nothing to a scheme without groups.",
    ["quantConfig.groupSize"],
    routes=ENGINE,
)
def groups_of_a_scheme_without(case: Case) -> Iterator[Finding]:
    if case.wrote("quantConfig.groupSize") and case.quantisation not in GROUP_WISE:
        scheme = case.quantisation or "without quantisation"
        yield caution("spec.quantConfig.groupSize", f"has no effect: {scheme} has no groups; remove it")


@rule(
    "SET-8",
    Stage.SPEC,
    Outcome.WARNS,
    "fastBuild keeps weights outside the plan for FP8 and unquantised models only.",
    ["fastBuild", "quantConfig.quantAlgo"],
    routes=ENGINE,
)
def fast_build_of_other_schemes(case: Case) -> Iterator[Finding]:
    if case.args.fast_build and case.quantisation not in (None, "FP8"):
        yield caution(
            "spec.fastBuild", f"has no effect for {case.quantisation}: its weights stay in the plan; remove it"
        )


RULES: Final[tuple[Rule, ...]] = (
    calibration_that_does_not_happen,
    cache_scheme_alone,
    groups_of_a_scheme_without,
    fast_build_of_other_schemes,
)
