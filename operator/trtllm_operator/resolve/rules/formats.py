"""Rules about what the model's folder holds: a Hugging Face checkpoint, a TensorRT-LLM checkpoint, or an engine.

Inspection tells them apart by config.json and reports the format as a fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from trtllm_engine.contract import ModelFacts

from ...api.engine import LLMEngineSpec
from ..capability import IMAGE, OWN, SCHEMES, Route, schemes
from ..fields import ALL, GROUP_SIZE
from ..options import ROOT
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, mismatch, rule, unsupported

HF, CHECKPOINT, ENGINE = "hf", "trtllm_checkpoint", "trtllm_engine"
READS: Final[Mapping[str, frozenset[Route]]] = {
    HF: ALL,
    CHECKPOINT: frozenset({Route.TENSORRT_LLM}),
    ENGINE: frozenset({Route.TENSORRT_LLM}),
}
METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "fp8": ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_BLOCK_SCALES"),
    "awq": ("W4A16_AWQ",),
    "gptq": ("W4A16_GPTQ", "W8A16_GPTQ"),
}
"""Names in a Hugging Face checkpoint's configuration, and the schemes that they stand for."""


@rule(
    "FMT-2",
    Stage.FACTS,
    Outcome.REFUSES,
    "A folder with pretrained_config and build_config in config.json is an engine, with architecture and dtype a "
    "TensorRT-LLM checkpoint (FMT-3), otherwise a Hugging Face model (FMT-4); the toolchain must read that format.",
    ["model"],
)
def format_is_read(case: Case) -> Iterator[Finding]:
    facts = case.model
    if case.route not in READS.get(facts.format, frozenset()):
        others = sorted(READS.get(facts.format, frozenset()))
        yield unsupported(
            "spec.model",
            f"{case.spec.model} is in the format {facts.format}, which {case.route} does not read",
            (f"toolchain {' or '.join(others)} does; " if others else "")
            + "use a checkpoint in the format of Hugging Face (config.json and safetensors)",
        )


@rule(
    "FMT-4",
    Stage.FACTS,
    Outcome.REFUSES,
    "A Hugging Face model must be of a family that the toolchain builds.",
    ["model"],
    routes=OWN,
)
def family_is_known(case: Case) -> Iterator[Finding]:
    if case.model.format == HF and case.model.family is None:
        yield unsupported(
            "spec.model",
            f"{case.spec.model} has the architecture {case.model.architecture}, "
            "which no toolchain of this version builds",
            "use a model of a family that the engine image lists",
        )


@rule(
    "ENG-2",
    Stage.FACTS,
    Outcome.REFUSES,
    "A finished engine keeps the quantisation that it was built with.",
    ["quantConfig.quantAlgo", "quantConfig.kvCacheQuantAlgo"],
)
def engine_keeps_its_quantisation(case: Case) -> Iterator[Finding]:
    asked = case.quantisation
    if case.model.format == ENGINE and asked is not None and not _same(asked, case.model.quantization):
        yield mismatch(
            "spec.quantConfig.quantAlgo",
            f"{asked} is asked for, and the engine {case.spec.model} was built with "
            f"{case.model.quantization or 'no quantisation'}",
            "remove it, or name the checkpoint in spec.model, from which a quantised engine is built",
        )


@rule(
    "ENG-3",
    Stage.FACTS,
    Outcome.WARNS,
    "A finished engine keeps its build options; those of the spec count for nothing.",
    ["buildConfig"],
    routes=IMAGE,
)
def engine_keeps_its_build_options(case: Case) -> Iterator[Finding]:
    if case.model.format == ENGINE and any(path.startswith(f"{ROOT}.buildConfig.") for path in case.written):
        yield caution(
            "spec.buildConfig", "has no effect: the model is an engine, and what it was built with counts; remove it"
        )


@rule(
    "QNT-3",
    Stage.FACTS,
    Outcome.REFUSES,
    "A quantised checkpoint keeps its scheme; another one cannot be asked for.",
    ["quantConfig.quantAlgo", GROUP_SIZE],
)
def checkpoint_keeps_its_quantisation(case: Case) -> Iterator[Finding]:
    asked, stored, kept = case.quantisation, case.model.quantization, case.stored
    if case.model.format == ENGINE or asked is None or stored is None or (case.route.own and case.random):
        return
    name, hint = _stored(case.model), "remove it, or use the checkpoint that is not quantised"
    already = f"is asked for, and the checkpoint {case.spec.model} is quantised already ({name})"
    if not (_same(asked, stored) or (kept is not None and asked == kept.algo)):
        yield mismatch("spec.quantConfig.quantAlgo", f"{asked} {already}", hint)
    elif kept is not None and case.wrote(GROUP_SIZE) and case.value(GROUP_SIZE) != kept.group_size:
        yield mismatch(f"spec.{GROUP_SIZE}", f"a group of {case.value(GROUP_SIZE)} {already}", hint)


@rule(
    "QNT-4",
    Stage.FACTS,
    Outcome.REFUSES,
    "A checkpoint that is quantised must be so in a way that the toolchain reads.",
    ["model"],
    routes=OWN,
)
def quantised_checkpoint_is_read(case: Case) -> Iterator[Finding]:
    facts, hint = case.model, "use the checkpoint that is not quantised"
    if facts.quantization is None or case.random:
        return
    if facts.quant is None:
        why = facts.quant_unread or "engines cannot keep that"
        yield unsupported("spec.model", f"{case.spec.model} is quantised ({facts.quantization}): {why}", hint)
    elif case.route not in SCHEMES[facts.quant.algo]:
        known = " and ".join(schemes(case.route))
        yield unsupported(
            "spec.model",
            f"{case.spec.model} is quantised ({_stored(facts)}), and toolchain {case.route} keeps weights as {known}",
            hint,
        )


@rule(
    "OP-5",
    Stage.FACTS,
    Outcome.REFUSES,
    "A pinned model is that model.",
    ["modelDigest"],
)
def pinned_digest(case: Case) -> Iterator[Finding]:
    pinned = case.spec.model_digest if isinstance(case.spec, LLMEngineSpec) else None
    if pinned is not None and pinned.removeprefix("sha256:") != case.model.digest.removeprefix("sha256:"):
        yield mismatch(
            "spec.modelDigest",
            f"{pinned} is not the digest of {case.spec.model}, which is {case.model.digest}",
            "the model was changed after it was pinned; create another engine for the new one",
        )


def _stored(facts: ModelFacts) -> str:
    """How the checkpoint is quantised, as a person says it."""
    if facts.quant is None:
        return str(facts.quantization)
    groups = f" in groups of {facts.quant.group_size}" if facts.quant.group_size else ""
    return f"{facts.quantization}: {facts.quant.algo.value}{groups}"


def _same(asked: str, stored: str | None) -> bool:
    return stored is not None and (asked == stored.upper() or asked in METHODS.get(stored.lower(), ()))


RULES: Final[tuple[Rule, ...]] = (
    format_is_read,
    family_is_known,
    quantised_checkpoint_is_read,
    engine_keeps_its_quantisation,
    engine_keeps_its_build_options,
    checkpoint_keeps_its_quantisation,
    pinned_digest,
)
