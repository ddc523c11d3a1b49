"""Rules about the sizes that an engine is built for, and those that it runs with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..capability import IMAGE, OWN
from ..options import ROOT
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, invalid, mismatch, rule

TWICE: Final = ("maxInputLen", "maxSeqLen", "maxBeamWidth")
"""Sizes that must be the same for build and runtime."""
LIMITS: Final = ("maxBatchSize", "maxNumTokens")
"""Sizes that the runtime may lower."""


@rule(
    "CON-2",
    Stage.SPEC,
    Outcome.REFUSES,
    "Lengths and beam width that are written twice are the same; a value that is written is never erased by one that "
    "is not (Q13).",
    [*TWICE, *(f"buildConfig.{name}" for name in TWICE)],
)
def written_twice(case: Case) -> Iterator[Finding]:
    for name in TWICE:
        top, build = case.value(name), case.value(f"buildConfig.{name}")
        if case.wrote(name) and case.wrote(f"buildConfig.{name}") and top != build:
            yield invalid(
                f"spec.{name}",
                f"{top} contradicts spec.buildConfig.{name}, which says {build}",
                "remove one of the two: both mean the same",
            )


@rule(
    "SET-6",
    Stage.SPEC,
    Outcome.REFUSES,
    "A runtime limit is not above what the engine is built for (Q15); below it, it counts.",
    [*LIMITS, *(f"buildConfig.{name}" for name in LIMITS)],
)
def runtime_limit_above_the_build(case: Case) -> Iterator[Finding]:
    for name in LIMITS:
        if not case.wrote(name) or not case.wrote(f"buildConfig.{name}"):
            continue
        top, build = case.value(name), case.value(f"buildConfig.{name}")
        if top > build:
            yield invalid(
                f"spec.{name}",
                f"{top} is more than spec.buildConfig.{name}, which the engine is built for: {build}",
                f"use at most {build}, or build for more",
            )


@rule(
    "SET-7",
    Stage.SPEC,
    Outcome.WARNS,
    "A size that is written once counts for build and runtime, all five of them (Q14); own servers take the build's.",
    [f"{name}" for name in LIMITS],
    routes=OWN,
)
def runtime_limit_below_the_build(case: Case) -> Iterator[Finding]:
    build = case.value("buildConfig.maxBatchSize")
    if case.wrote("maxBatchSize") and case.wrote("buildConfig.maxBatchSize") and case.value("maxBatchSize") < build:
        yield caution(
            "spec.maxBatchSize",
            f"has no effect: the server takes the {build} of spec.buildConfig.maxBatchSize; remove it",
        )


@rule(
    "BLD-2",
    Stage.SPEC,
    Outcome.REFUSES,
    "A prompt is not longer than its sequence.",
    ["buildConfig.maxInputLen", "buildConfig.maxSeqLen"],
)
def prompt_within_sequence(case: Case) -> Iterator[Finding]:
    (path, prompt), (other, sequence) = case.size("maxInputLen"), case.size("maxSeqLen")
    if prompt is not None and sequence is not None and prompt > sequence:
        yield invalid(
            path,
            f"{prompt} is more than {other}, which says {sequence}: a prompt is part of its sequence",
            f"use at most {sequence}, or raise {other}",
        )


@rule(
    "BLD-1",
    Stage.FACTS,
    Outcome.REFUSES,
    "A sequence is not longer than the positions that the model was made for.",
    ["buildConfig.maxSeqLen", "buildConfig.maxInputLen"],
    routes=OWN,
)
def length_within_the_model(case: Case) -> Iterator[Finding]:
    most = case.model.max_position_embeddings
    for name in ("maxSeqLen", "maxInputLen"):
        path, length = case.size(name)
        if length is not None and length > most:
            yield mismatch(
                path,
                f"{length} tokens are more than the {most} that {case.spec.model} was made for",
                f"use at most {most}",
            )


@rule(
    "BLD-1",
    Stage.FACTS,
    Outcome.WARNS,
    "TensorRT-LLM builds for longer sequences than the model was made for.",
    ["buildConfig.maxSeqLen"],
    routes=IMAGE,
)
def length_beyond_the_model(case: Case) -> Iterator[Finding]:
    (path, length), most = case.size("maxSeqLen"), case.model.max_position_embeddings
    if length is not None and length > most:
        yield caution(
            path,
            f"{length} tokens are more than the {most} that {case.spec.model} was made for: answers beyond that "
            "are likely wrong; use at most that",
        )


@rule(
    "BLD-6",
    Stage.SPEC,
    Outcome.WARNS,
    "Draft tokens come on top of the longest sequence.",
    ["buildConfig.maxSeqLen", "speculativeConfig.maxDraftLen"],
    routes=IMAGE,
)
def draft_within_the_sequence(case: Case) -> Iterator[Finding]:
    path, length = case.size("maxSeqLen")
    if length is not None and case.draft_len:
        yield caution(
            path,
            f"the engine is built for {length + case.draft_len} tokens: {case.draft_len} that are guessed come on "
            "top; nothing to do, if there is memory for them",
        )


@rule(
    "LOG-1",
    Stage.SPEC,
    Outcome.REFUSES,
    "Logits of prompts and draft tokens do not go together.",
    ["buildConfig.gatherContextLogits", "buildConfig.maxDraftLen"],
)
def prompt_logits_without_draft(case: Case) -> Iterator[Finding]:
    if case.value("buildConfig.gatherContextLogits") and case.draft_len:
        where = "spec.speculativeConfig" if case.args.speculative_config else f"{ROOT}.buildConfig.maxDraftLen"
        yield invalid(
            "spec.buildConfig.gatherContextLogits",
            f"true is not possible together with {where}, which guesses {case.draft_len} tokens",
            "remove one of the two",
        )


RULES: Final[tuple[Rule, ...]] = (
    written_twice,
    runtime_limit_above_the_build,
    runtime_limit_below_the_build,
    prompt_within_sequence,
    length_within_the_model,
    length_beyond_the_model,
    draft_within_the_sequence,
    prompt_logits_without_draft,
)
