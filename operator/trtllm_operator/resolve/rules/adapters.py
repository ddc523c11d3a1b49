"""Rules about LoRA and prompt adapters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..capability import IMAGE, Route
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, invalid, rule

ENGINE: Final = frozenset({Route.TENSORRT_LLM})
LORA: Final = "buildConfig.pluginConfig.loraPlugin"


@rule(
    "SET-10",
    Stage.SPEC,
    Outcome.WARNS,
    "The rank of adapters means nothing without enableLora.",
    ["maxLoraRank", "enableLora"],
    routes=IMAGE,
)
def rank_without_lora(case: Case) -> Iterator[Finding]:
    if case.wrote("maxLoraRank") and not case.args.enable_lora:
        yield caution("spec.maxLoraRank", "has no effect: spec.enableLora is not true; set it, or remove this")


@rule(
    "LLM-3",
    Stage.SPEC,
    Outcome.WARNS,
    "Numbers of adapters mean nothing beside peftCacheConfig, which says sizes.",
    ["maxLoras", "maxCpuLoras", "peftCacheConfig"],
    routes=IMAGE,
)
def numbers_beside_a_cache(case: Case) -> Iterator[Finding]:
    if case.args.peft_cache_config is not None:
        for name in ("maxLoras", "maxCpuLoras"):
            if case.wrote(name):
                yield caution(f"spec.{name}", "has no effect: spec.peftCacheConfig is written and stands in its place")


@rule(
    "LLM-6",
    Stage.SPEC,
    Outcome.WARNS,
    "Later releases of TensorRT-LLM refuse loraPrefetchDir.",
    ["peftCacheConfig.loraPrefetchDir"],
    routes=IMAGE,
)
def prefetched_adapters(case: Case) -> Iterator[Finding]:
    if case.wrote("peftCacheConfig.loraPrefetchDir"):
        yield caution("spec.peftCacheConfig.loraPrefetchDir", "is refused by later releases of the image; remove it")


@rule(
    "SET-11",
    Stage.SPEC,
    Outcome.REFUSES,
    "Prompt adapters have at least one virtual token.",
    ["enablePromptAdapter", "maxPromptAdapterToken"],
    routes=ENGINE,
)
def tokens_of_a_prompt_adapter(case: Case) -> Iterator[Finding]:
    if case.args.enable_prompt_adapter and not case.args.max_prompt_adapter_token:
        yield invalid(
            "spec.maxPromptAdapterToken",
            "is required with spec.enablePromptAdapter, and at least 1",
            "say how many virtual tokens an adapter has",
        )


@rule(
    "LLM-7",
    Stage.SPEC,
    Outcome.WARNS,
    "DoRA needs the LoRA plugin.",
    ["buildConfig.pluginConfig.doraPlugin", LORA],
    routes=ENGINE,
)
def dora_without_lora(case: Case) -> Iterator[Finding]:
    lora = case.args.enable_lora or case.value(LORA) not in (None, "disable")
    if case.plugin("doraPlugin") and not lora:
        yield caution(
            "spec.buildConfig.pluginConfig.doraPlugin", "has no effect without spec.enableLora; set it to true"
        )


RULES: Final[tuple[Rule, ...]] = (
    rank_without_lora,
    numbers_beside_a_cache,
    prefetched_adapters,
    tokens_of_a_prompt_adapter,
    dora_without_lora,
)
