"""Rules about the pool of cached keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..capability import IMAGE, Route
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, invalid, rule

ENGINE: Final = frozenset({Route.TENSORRT_LLM})
STREAMING: Final = "spec.buildConfig.pluginConfig.streamingllm"


@rule(
    "ARB-4",
    Stage.SPEC,
    Outcome.REFUSES,
    "StreamingLLM has a window for the layers and sinks that stay.",
    ["kvCacheConfig.maxAttentionWindow", "kvCacheConfig.sinkTokenLength", "buildConfig.pluginConfig.streamingllm"],
    routes=ENGINE,
)
def streaming_needs_window_and_sinks(case: Case) -> Iterator[Finding]:
    if case.plugin("streamingllm"):
        for name in ("maxAttentionWindow", "sinkTokenLength"):
            if not case.wrote(f"kvCacheConfig.{name}"):
                yield invalid(
                    f"spec.kvCacheConfig.{name}",
                    f"is required, because {STREAMING} is true",
                    "for example maxAttentionWindow: [2048] and sinkTokenLength: 4",
                )


@rule(
    "KVC-1",
    Stage.SPEC,
    Outcome.REFUSES,
    "Sinks fit into the window.",
    ["kvCacheConfig.sinkTokenLength", "kvCacheConfig.maxAttentionWindow"],
    routes=ENGINE,
)
def sinks_within_the_window(case: Case) -> Iterator[Finding]:
    windows, sinks = case.value("kvCacheConfig.maxAttentionWindow"), case.value("kvCacheConfig.sinkTokenLength")
    if windows and sinks and sinks >= min(windows):
        yield invalid(
            "spec.kvCacheConfig.sinkTokenLength",
            f"{sinks} leaves nothing of the smallest spec.kvCacheConfig.maxAttentionWindow, {min(windows)}",
            f"use at most {min(windows) - 1}",
        )


@rule(
    "KVC-2",
    Stage.SPEC,
    Outcome.WARNS,
    "Partial reuse needs reuse.",
    ["kvCacheConfig.enablePartialReuse", "kvCacheConfig.enableBlockReuse"],
    routes=IMAGE,
)
def partial_reuse_without_reuse(case: Case) -> Iterator[Finding]:
    for name in ("enablePartialReuse", "copyOnPartialReuse"):
        reuse = case.value("kvCacheConfig.enableBlockReuse")
        if case.wrote(f"kvCacheConfig.{name}") and case.value(f"kvCacheConfig.{name}") and reuse is False:
            yield caution(
                f"spec.kvCacheConfig.{name}", "has no effect: enableBlockReuse is false; remove one of the two"
            )


RULES: Final[tuple[Rule, ...]] = (
    streaming_needs_window_and_sinks,
    sinks_within_the_window,
    partial_reuse_without_reuse,
)
