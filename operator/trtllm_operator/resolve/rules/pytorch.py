"""Rules about the switches of the PyTorch backend, of which releases renamed some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..arbitrator import shown
from ..capability import BACKENDS
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, invalid, rule

SECTION: Final = "pytorchBackendConfig"
RENAMED: Final = (("mixedDecoder", "mixedSampler"), ("enableTrtllmDecoder", "enableTrtllmSampler"))


@rule(
    "PT-1",
    Stage.SPEC,
    Outcome.REFUSES,
    "The largest CUDA graph is written once, or twice the same.",
    [f"{SECTION}.cudaGraphBatchSizes", f"{SECTION}.cudaGraphMaxBatchSize"],
    routes=BACKENDS,
)
def largest_graph(case: Case) -> Iterator[Finding]:
    sizes, most = case.value(f"{SECTION}.cudaGraphBatchSizes"), case.value(f"{SECTION}.cudaGraphMaxBatchSize")
    if sizes and most and max(sizes) != most:
        yield invalid(
            f"spec.{SECTION}.cudaGraphMaxBatchSize",
            f"{most} contradicts spec.{SECTION}.cudaGraphBatchSizes, whose largest is {max(sizes)}",
            "remove one of the two",
        )


@rule(
    "PT-2",
    Stage.SPEC,
    Outcome.REFUSES,
    "Overlap is not switched on and off at once.",
    [f"{SECTION}.enableOverlapScheduler", f"{SECTION}.disableOverlapScheduler"],
    routes=BACKENDS,
)
def overlap_switches(case: Case) -> Iterator[Finding]:
    if case.value(f"{SECTION}.enableOverlapScheduler") and case.value(f"{SECTION}.disableOverlapScheduler"):
        yield invalid(
            f"spec.{SECTION}.enableOverlapScheduler",
            f"true contradicts spec.{SECTION}.disableOverlapScheduler, which is true as well",
            "keep the first for images until 0.19, the second for later ones",
        )


@rule(
    "PT-3",
    Stage.SPEC,
    Outcome.REFUSES,
    "The two names of a switch do not say different things.",
    [f"{SECTION}.{name}" for pair in RENAMED for name in pair],
    routes=BACKENDS,
)
def renamed_switches(case: Case) -> Iterator[Finding]:
    for old, new in RENAMED:
        before, after = case.value(f"{SECTION}.{old}"), case.value(f"{SECTION}.{new}")
        if case.wrote(f"{SECTION}.{old}") and case.wrote(f"{SECTION}.{new}") and before != after:
            yield invalid(
                f"spec.{SECTION}.{old}",
                f"{shown(before)} contradicts spec.{SECTION}.{new}, its name from 0.20, which says {shown(after)}",
                "keep the one that the image knows",
            )


RULES: Final[tuple[Rule, ...]] = (largest_graph, overlap_switches, renamed_switches)
