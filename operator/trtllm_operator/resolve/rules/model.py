"""Rules about where the model is, and what it may do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..capability import OWN
from ..source import check_source
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, invalid, rule


@rule(
    "MDL-3",
    Stage.SPEC,
    Outcome.REFUSES,
    "A model is a folder on modelVolume, or a repository of the hub, by its form alone: a path that is missing never "
    "becomes a repository.",
    ["model", "revision", "modelVolume"],
)
def source(case: Case) -> Iterator[Finding]:
    yield from check_source(case.spec)


@rule("OP-1", Stage.SPEC, Outcome.REFUSES, "Code from a model's repository is never run.", ["trustRemoteCode"])
def remote_code(case: Case) -> Iterator[Finding]:
    if case.spec.trust_remote_code:
        yield invalid(
            "spec.trustRemoteCode",
            "true is not allowed: code from a model's repository is never run",
            "remove it; models of the families that the toolchains know need no code of their own",
        )


@rule("OP-10", Stage.SPEC, Outcome.WARNS, "Random weights answer nonsense.", ["loadFormat"])
def random_weights(case: Case) -> Iterator[Finding]:
    if case.random:
        yield caution(
            "spec.loadFormat",
            "dummy makes up random weights, so every answer is nonsense: it is for trying out sizes and speeds; "
            "remove it to serve the model",
        )


@rule(
    "OP-11",
    Stage.FACTS,
    Outcome.WARNS,
    "Random weights are not quantised as the checkpoint's are.",
    ["loadFormat", "quantConfig.quantAlgo"],
    routes=OWN,
)
def random_weights_are_wide(case: Case) -> Iterator[Finding]:
    if case.random and case.model.quantization is not None and case.quantisation is None:
        kept = case.model.quant
        remedy = f"; quantConfig.quantAlgo: {kept.algo.value} makes them as small" if kept else ""
        yield caution(
            "spec.loadFormat",
            f"random weights are floating numbers, and those of {case.spec.model} are quantised "
            f"({case.model.quantization}){remedy}",
        )


@rule("OP-2", Stage.SPEC, Outcome.REFUSES, "The volume with models is mounted read-only.", ["modelVolume.readOnly"])
def read_only_volume(case: Case) -> Iterator[Finding]:
    if case.spec.model_volume is not None and case.spec.model_volume.read_only is False:
        yield invalid(
            "spec.modelVolume.readOnly",
            "false is not allowed: the volume with models is only ever mounted read-only",
            "remove it, or say true",
        )


@rule(
    "INIT-1",
    Stage.SPEC,
    Outcome.WARNS,
    "skipTokenizerInit drops the tokenizer, also one that is named.",
    ["skipTokenizerInit", "tokenizer"],
)
def tokenizer_that_is_dropped(case: Case) -> Iterator[Finding]:
    if case.args.skip_tokenizer_init and case.args.tokenizer is not None:
        yield caution("spec.tokenizer", "is not loaded, because skipTokenizerInit is true; remove one of the two")


@rule(
    "LLM-4",
    Stage.SPEC,
    Outcome.REFUSES,
    "Guided decoding needs a tokenizer.",
    ["guidedDecodingBackend", "skipTokenizerInit"],
)
def guided_decoding_needs_a_tokenizer(case: Case) -> Iterator[Finding]:
    if case.args.guided_decoding_backend is not None and case.args.skip_tokenizer_init:
        yield invalid(
            "spec.guidedDecodingBackend",
            f"{case.args.guided_decoding_backend} needs a tokenizer, and spec.skipTokenizerInit is true",
            "remove one of the two",
        )


RULES: Final[tuple[Rule, ...]] = (
    source,
    remote_code,
    random_weights,
    random_weights_are_wide,
    read_only_volume,
    tokenizer_that_is_dropped,
    guided_decoding_needs_a_tokenizer,
)
