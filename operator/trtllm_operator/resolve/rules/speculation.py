"""Rules about tokens that are guessed ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...api.llm_args import EagleDecodingConfig, LookaheadDecodingConfig, MedusaDecodingConfig
from ..capability import IMAGE, Route
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, invalid, rule

WHERE: Final = "spec.speculativeConfig"
ENGINE: Final = frozenset({Route.TENSORRT_LLM})
PYTORCH: Final = frozenset({Route.PYTORCH})
EAGLE_BATCH: Final = 512
EAGLE_DRAFT: Final = 256
MODES: Final = {"Medusa": "MEDUSA", "Eagle": "EAGLE", "Lookahead": "LOOKAHEAD_DECODING"}


@rule(
    "SPEC-4",
    Stage.SPEC,
    Outcome.REFUSES,
    "An n-gram has at least two tokens: one would need no verification set and a window of 1 (CXX-3), which SPEC-3 "
    "forbids.",
    ["speculativeConfig.maxNgramSize"],
    routes=IMAGE,
)
def ngrams_of_one(case: Case) -> Iterator[Finding]:
    config = case.args.speculative_config
    if isinstance(config, LookaheadDecodingConfig) and config.max_ngram_size == 1:
        yield invalid(f"{WHERE}.maxNgramSize", "1 is not possible: there is nothing to look ahead", "use 2 or more")


@rule(
    "SPEC-5",
    Stage.SPEC,
    Outcome.REFUSES,
    "Medusa and Eagle (SPEC-6) guess at least one token; the draft length is written (Q17).",
    ["speculativeConfig.maxDraftLen"],
    routes=ENGINE,
)
def draft_length(case: Case) -> Iterator[Finding]:
    config = case.args.speculative_config
    if isinstance(config, MedusaDecodingConfig | EagleDecodingConfig) and not config.max_draft_len:
        said = "is required" if config.max_draft_len is None else "0 is not allowed"
        yield invalid(
            f"{WHERE}.maxDraftLen",
            f"{said}: {config.decoding_type} guesses at least one token",
            "say how many tokens it guesses; with medusaChoices or eagleChoices, as many as these have entries",
        )


@rule(
    "SPEC-7",
    Stage.SPEC,
    Outcome.REFUSES,
    "Eagle on backend pytorch has its weights in a place of their own.",
    ["speculativeConfig.pytorchEagleWeightsPath"],
    routes=PYTORCH,
)
def eagle_weights(case: Case) -> Iterator[Finding]:
    config = case.args.speculative_config
    if isinstance(config, EagleDecodingConfig) and config.pytorch_eagle_weights_path is None:
        yield invalid(
            f"{WHERE}.pytorchEagleWeightsPath",
            "is required for Eagle with backend pytorch",
            "name the folder or repository with the EAGLE-3 weights",
        )


@rule(
    "SPEC-8",
    Stage.SPEC,
    Outcome.WARNS,
    "The path of EAGLE-3 weights means nothing to an engine (Q25).",
    ["speculativeConfig.pytorchEagleWeightsPath"],
    routes=ENGINE,
)
def eagle_weights_of_an_engine(case: Case) -> Iterator[Finding]:
    config = case.args.speculative_config
    if isinstance(config, EagleDecodingConfig) and config.pytorch_eagle_weights_path is not None:
        yield caution(
            f"{WHERE}.pytorchEagleWeightsPath",
            "has no effect: it is for backend pytorch; an engine takes speculativeModel",
        )


@rule(
    "CXX-4",
    Stage.SPEC,
    Outcome.REFUSES,
    "Eagle's tree is fixed or dynamic, not both.",
    ["speculativeConfig.eagleChoices", "speculativeConfig.useDynamicTree"],
    routes=IMAGE,
)
def one_tree(case: Case) -> Iterator[Finding]:
    config = case.args.speculative_config
    if isinstance(config, EagleDecodingConfig) and config.use_dynamic_tree and config.eagle_choices is not None:
        yield invalid(
            f"{WHERE}.eagleChoices",
            f"is not possible together with {WHERE}.useDynamicTree: true",
            "remove one of the two",
        )


@rule(
    "BLD-7",
    Stage.SPEC,
    Outcome.REFUSES,
    "An Eagle engine has a batch of at most 512 and guesses at most 256 tokens.",
    ["buildConfig.maxBatchSize", "speculativeConfig.maxDraftLen"],
    routes=ENGINE,
)
def eagle_sizes(case: Case) -> Iterator[Finding]:
    config = case.args.speculative_config
    if not isinstance(config, EagleDecodingConfig):
        return
    path, batch = case.size("maxBatchSize")
    if batch is not None and batch > EAGLE_BATCH:
        yield invalid(path, f"{batch} is too much for Eagle", f"use at most {EAGLE_BATCH}")
    if config.max_draft_len is not None and config.max_draft_len > EAGLE_DRAFT:
        yield invalid(
            f"{WHERE}.maxDraftLen", f"{config.max_draft_len} is too much for Eagle", f"use at most {EAGLE_DRAFT}"
        )


@rule(
    "CXX-5",
    Stage.SPEC,
    Outcome.REFUSES,
    "The build's mode is the one of speculativeConfig.",
    ["buildConfig.speculativeDecodingMode", "speculativeConfig.decodingType"],
    routes=ENGINE,
)
def mode_of_the_build(case: Case) -> Iterator[Finding]:
    config, path = case.args.speculative_config, "buildConfig.speculativeDecodingMode"
    needed = MODES.get(config.decoding_type) if config else None
    if config is not None and needed and case.wrote(path) and case.value(path) != needed:
        yield invalid(
            f"spec.{path}",
            f"{case.value(path)} contradicts {WHERE}.decodingType, which says {config.decoding_type}",
            f"remove it: it follows and is {needed}",
        )


RULES: Final[tuple[Rule, ...]] = (
    ngrams_of_one,
    draft_length,
    eagle_weights,
    eagle_weights_of_an_engine,
    one_tree,
    eagle_sizes,
    mode_of_the_build,
)
