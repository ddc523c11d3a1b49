"""Rules about how many tokens one step computes: TensorRT-LLM packs the sequences of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..capability import Route
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, invalid, rule

ENGINE: Final = frozenset({Route.TENSORRT_LLM})
IMAGE: Final = frozenset({Route.TENSORRT_LLM, Route.PYTORCH})
MANY: Final = 16384


@rule(
    "TOK-1",
    Stage.SPEC,
    Outcome.WARNS,
    "Without packing the token limits count for nothing.",
    ["buildConfig.maxNumTokens", "buildConfig.pluginConfig.removeInputPadding"],
    routes=ENGINE,
)
def limit_without_packing(case: Case) -> Iterator[Finding]:
    if case.plugin("removeInputPadding") is False:
        for path in _written(case, "maxNumTokens", "optNumTokens"):
            yield caution(
                path,
                "has no effect: spec.buildConfig.pluginConfig.removeInputPadding is false, so a step has batch x "
                "sequence tokens; remove one of the two",
            )


@rule(
    "TOK-4",
    Stage.SPEC,
    Outcome.WARNS,
    "More than 16384 tokens in a step are rarely faster.",
    ["buildConfig.maxNumTokens"],
    routes=IMAGE,
)
def many_tokens(case: Case) -> Iterator[Finding]:
    path, tokens = case.size("maxNumTokens")
    if tokens is not None and tokens > MANY:
        yield caution(path, f"{tokens} tokens in a step cost memory for activations and rarely gain speed above {MANY}")


@rule(
    "TOK-5",
    Stage.SPEC,
    Outcome.WARNS,
    "A step cannot have more tokens than all sequences at full length.",
    ["buildConfig.maxNumTokens"],
    routes=ENGINE,
)
def more_tokens_than_sequences(case: Case) -> Iterator[Finding]:
    (path, tokens), (_, batch), (_, length) = (
        case.size(name) for name in ("maxNumTokens", "maxBatchSize", "maxSeqLen")
    )
    if tokens and batch and length and tokens > batch * length:
        yield caution(
            path, f"{tokens} tokens are never reached: {batch} sequences of {length} are {batch * length}; lower it"
        )


@rule(
    "TOK-6",
    Stage.SPEC,
    Outcome.REFUSES,
    "A step holds at least one block of the cache.",
    ["buildConfig.maxNumTokens", "buildConfig.pluginConfig.tokensPerBlock"],
    routes=ENGINE,
)
def step_holds_a_block(case: Case) -> Iterator[Finding]:
    (path, tokens), block = case.size("maxNumTokens"), int(case.plugin("tokensPerBlock"))
    if tokens is not None and tokens < block:
        yield invalid(
            path,
            f"{tokens} is less than the {block} tokens of a block of the cache "
            "(spec.buildConfig.pluginConfig.tokensPerBlock)",
            f"use at least {block}",
        )


@rule(
    "TOK-7",
    Stage.SPEC,
    Outcome.REFUSES,
    "The step that is made fastest is not above the largest.",
    ["buildConfig.optNumTokens", "buildConfig.maxNumTokens"],
    routes=ENGINE,
)
def fastest_step_within_the_largest(case: Case) -> Iterator[Finding]:
    best, (path, tokens) = case.value("buildConfig.optNumTokens"), case.size("maxNumTokens")
    if best is not None and tokens is not None and best > tokens:
        yield invalid(
            "spec.buildConfig.optNumTokens",
            f"{best} is more than {path}, which says {tokens}",
            f"use at most {tokens}, or remove it",
        )


@rule(
    "TOK-8",
    Stage.SPEC,
    Outcome.REFUSES,
    "Several profiles have no single step that is made fastest.",
    ["buildConfig.optNumTokens", "buildConfig.pluginConfig.multipleProfiles"],
    routes=ENGINE,
)
def fastest_step_or_profiles(case: Case) -> Iterator[Finding]:
    if case.plugin("multipleProfiles") and case.wrote("buildConfig.optNumTokens"):
        yield invalid(
            "spec.buildConfig.optNumTokens",
            "is not possible together with spec.buildConfig.pluginConfig.multipleProfiles: true",
            "remove one of the two",
        )


@rule(
    "TOK-9",
    Stage.SPEC,
    Outcome.WARNS,
    "A prompt that is longer than a step needs chunked prefill.",
    ["buildConfig.maxNumTokens", "buildConfig.maxInputLen", "enableChunkedPrefill"],
    routes=IMAGE,
)
def prompt_longer_than_a_step(case: Case) -> Iterator[Finding]:
    (path, tokens), (longest, prompt) = case.size("maxNumTokens"), case.size("maxInputLen")
    limit = case.size_or_default("maxNumTokens")
    if prompt is not None and limit is not None and prompt > limit and not case.args.enable_chunked_prefill:
        yield caution(
            path if tokens is not None else longest,
            f"prompts of more than {limit} tokens will be refused, although {longest} allows {prompt}; "
            f"set spec.enableChunkedPrefill to true, or spec.buildConfig.maxNumTokens to {prompt}",
        )


def _written(case: Case, *names: str) -> list[str]:
    return [f"spec.buildConfig.{name}" for name in names if case.wrote(f"buildConfig.{name}")]


RULES: Final[tuple[Rule, ...]] = (
    limit_without_packing,
    many_tokens,
    more_tokens_than_sequences,
    step_holds_a_block,
    fastest_step_within_the_largest,
    fastest_step_or_profiles,
    prompt_longer_than_a_step,
)
