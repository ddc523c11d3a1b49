"""Rules about quantisation by the build."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..capability import OWN, Route
from ..fields import GROUP_SIZE
from ..quantisation import GROUP_WISE, OWN_GROUPS, WITHOUT_CALIBRATION
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
    [GROUP_SIZE],
    routes=ENGINE | OWN,
)
def groups_of_a_scheme_without(case: Case) -> Iterator[Finding]:
    # What a toolchain cannot do at all is refused with its own reason, and has its groups elsewhere.
    grouped = GROUP_WISE | OWN_GROUPS.keys() if case.route.own else GROUP_WISE
    if case.wrote(GROUP_SIZE) and case.quantisation not in grouped:
        why = f"{case.quantisation} has no groups" if case.quantisation else "no quantAlgo is asked for"
        yield caution(f"spec.{GROUP_SIZE}", f"has no effect: {why}; remove it")


@rule(
    "QNT-6",
    Stage.SPEC,
    Outcome.REFUSES,
    "Groups of W4A16 are of 128, 64 or 32 columns.",
    [GROUP_SIZE],
    routes=OWN,
)
def group_size_that_exists(case: Case) -> Iterator[Finding]:
    allowed = OWN_GROUPS.get(case.quantisation or "", ())
    if allowed and case.wrote(GROUP_SIZE) and case.value(GROUP_SIZE) not in allowed:
        yield invalid(
            f"spec.{GROUP_SIZE}",
            f"{case.value(GROUP_SIZE)} is no size of the groups of {case.quantisation} with toolchain {case.route}",
            f"allowed are {', '.join(map(str, allowed))}; unset, it is the largest that divides the model",
        )


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
    group_size_that_exists,
    fast_build_of_other_schemes,
)
