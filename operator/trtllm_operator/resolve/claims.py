"""What the features of a spec want of TensorRT-LLM's options (rules ARB, FMHA and their neighbours)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from . import projection
from .arbitrator import Claim, Settlement, Strength, settle
from .capability import BACKENDS, FP8_SINCE, Route
from .options import REFERENCE
from .quantisation import FP8_ATTENTION
from .rules.case import Case
from .rules.rule import Entry, Outcome, Stage
from .rules.speculation import EAGLE_BATCH

PLUGINS: Final = "spec.buildConfig.pluginConfig"
PAGED: Final = f"{PLUGINS}.usePagedContextFmha"
FP8_PROMPTS: Final = f"{PLUGINS}.useFp8ContextFmha"
REUSE: Final = "spec.kvCacheConfig.enableBlockReuse"
CHUNKED: Final = "spec.enableChunkedPrefill"
MODE: Final = "spec.buildConfig.speculativeDecodingMode"
DRAFT: Final = "spec.buildConfig.maxDraftLen"
STATISTICS: Final = "spec.pytorchBackendConfig"


def negotiate(case: Case) -> Settlement:
    """Settle the options of the route; own toolchains have none to settle."""
    if case.route is Route.TENSORRT_LLM:
        first = settle(case.written, REFERENCE, claims := list(_engine(case)))
        # Only now is it known whether prompts attend over the paged cache, which decides about FP8 (FMHA-4).
        return settle(case.written, REFERENCE, [*claims, *_fp8_prompts(case, first)])
    if case.route in BACKENDS:
        return settle(case.written, REFERENCE, list(_backend(case)))
    return Settlement(values=case.written)


def _engine(case: Case) -> Iterator[Claim]:
    yield from _prompt_attention(case)
    yield from _streaming(case)
    yield from _reuse(case)
    yield from _speculation(case)
    yield from _adapters(case)
    yield from _types(case)
    if case.args.enable_chunked_prefill:
        yield Claim(
            rule="ARB-2",
            path=CHUNKED,
            asked=True,
            wants={PAGED: True},
            strength=Strength.PERFORMANCE,
            why="chunks of a prompt attend to the chunks before them in the cache",
            fallback={CHUNKED: False},
        )


def _prompt_attention(case: Case) -> Iterator[Claim]:
    cache, where = case.cache_quantisation, "spec.quantConfig.kvCacheQuantAlgo"
    model_in_fp8 = case.quantisation in FP8_ATTENTION
    if case.plugin("contextFmha") is False:
        yield Claim(
            rule="FMHA-1",
            path=f"{PLUGINS}.contextFmha",
            asked=False,
            wants={PAGED: False, FP8_PROMPTS: False},
            why="both are kinds of the fused attention for prompts, which is off",
        )
    if cache == "FP8" and not model_in_fp8:
        yield Claim(
            rule="FMHA-2",
            path=where,
            asked=cache,
            wants={PAGED: False, FP8_PROMPTS: False},
            why="over an FP8 cache, prompts of a model that is not FP8 cannot attend",
        )
    if cache == "INT8":
        yield Claim(
            rule="FMHA-5",
            path=where,
            asked=cache,
            wants={PAGED: False},
            why="prompts cannot attend over an INT8 cache",
        )
    if case.capability is not None and case.capability < FP8_SINCE and (model_in_fp8 or cache == "FP8"):
        yield Claim(
            rule="FMHA-3",
            path=f"{projection.options_path(case.spec)}.target.computeCapability",
            wants={FP8_PROMPTS: False, **({PAGED: False} if cache == "FP8" else {})},
            strength=Strength.FACT,
            why=f"GPUs of compute capability {case.capability[0]}.{case.capability[1]} have no FP8 attention",
        )
    wrote = case.written.get(FP8_PROMPTS)
    if model_in_fp8 and wrote is not None and wrote is not (cache == "FP8"):
        yield Claim(
            rule="ARB-5",
            path=FP8_PROMPTS,
            asked=wrote,
            wants={PAGED: False},
            why="prompts attend over the paged cache in the cache's own type only",
        )


def _fp8_prompts(case: Case, first: Settlement) -> Iterator[Claim]:
    """FMHA-4: over the paged cache, prompts attend in FP8 exactly if the cache is FP8."""
    paged, cache = first.values.get(PAGED, REFERENCE[PAGED]), case.cache_quantisation
    if paged and case.quantisation in FP8_ATTENTION and FP8_PROMPTS not in case.written:
        yield Claim(
            rule="FMHA-4",
            path="spec.quantConfig.quantAlgo",
            wants={FP8_PROMPTS: cache == "FP8"},
            why="prompts attend over the paged cache in its own type, which is "
            + ("FP8" if cache == "FP8" else "not FP8; kvCacheQuantAlgo: FP8 makes both FP8"),
        )


def _streaming(case: Case) -> Iterator[Claim]:
    if case.plugin("streamingllm"):
        yield Claim(
            rule="ARB-3",
            path=f"{PLUGINS}.streamingllm",
            asked=True,
            wants={PAGED: False, REUSE: False},
            why="StreamingLLM moves keys inside the cache, so blocks can be neither shared nor read by prompts (BLD-3)",
        )


def _reuse(case: Case) -> Iterator[Claim]:
    path, beams = case.size("maxBeamWidth")
    if beams is not None and beams > 1:
        yield Claim(
            rule="ARB-6",
            path=path,
            asked=beams,
            wants={REUSE: False},
            why="beams share and copy blocks of their own",
        )
    if case.value("buildConfig.gatherContextLogits"):
        yield Claim(
            rule="CXX-6",
            path="spec.buildConfig.gatherContextLogits",
            asked=True,
            wants={REUSE: False},
            why="a prompt whose blocks are reused is not computed, so it has no logits",
        )
    if case.value("kvCacheConfig.enableBlockReuse"):
        yield Claim(
            rule="ARB-7",
            path=REUSE,
            asked=case.written.get(REUSE),
            wants={REUSE: True, PAGED: True},
            why="the rest of a prompt attends to reused blocks in the paged cache",
            fallback={REUSE: False},
        )


def _speculation(case: Case) -> Iterator[Claim]:
    config = case.args.speculative_config
    modes = {
        "Lookahead": ("SPEC-1", "LOOKAHEAD_DECODING"),
        "Medusa": ("SPEC-5", "MEDUSA"),
        "Eagle": ("SPEC-6", "EAGLE"),
    }
    if config is None or config.decoding_type not in modes:
        return
    rule, mode = modes[config.decoding_type]
    where, draft = "spec.speculativeConfig.decodingType", _draft(case)
    wants: dict[str, Any] = {MODE: mode, **({DRAFT: draft} if draft else {})}
    yield Claim(
        rule=rule,
        path=where,
        asked=config.decoding_type,
        wants=wants,
        why=f"an engine for {config.decoding_type} is built for it, with room for its {draft} guesses",
    )
    if config.decoding_type == "Eagle":
        yield Claim(
            rule="BLD-7",
            path=where,
            asked="Eagle",
            wants={PAGED: True},
            why="Eagle's guesses are verified over the paged cache",
        )
        path, batch = case.size("maxBatchSize")
        if batch is None:
            yield Claim(
                rule="BLD-7",
                path=where,
                wants={path: EAGLE_BATCH},
                why="an Eagle engine cannot have a larger batch",
            )


def _draft(case: Case) -> int:
    """Tokens that are guessed; Lookahead's follow from its sizes and only raise what is written (SPEC-2)."""
    config = case.args.speculative_config
    if config is None or config.decoding_type != "Lookahead":
        return case.draft_len
    window, ngram, verified = (
        getattr(config, name) or default
        for name, default in (("max_window_size", 4), ("max_ngram_size", 3), ("max_verification_set_size", 4))
    )
    return max(lookahead_draft(window, ngram, verified), int(case.written.get(DRAFT, 0)))


def lookahead_draft(window: int, ngram: int, verified: int) -> int:
    """Draft tokens of a step of Lookahead decoding."""
    return (0 if ngram == 1 else ngram - 2) + (window - 1 + verified) * (ngram - 1)


def _adapters(case: Case) -> Iterator[Claim]:
    args, rank = case.args, "spec.buildConfig.loraConfig.maxLoraRank"
    if args.enable_lora:
        kept = case.written.get(f"{PLUGINS}.loraPlugin")
        yield Claim(
            rule="SET-10",
            path="spec.enableLora",
            asked=True,
            # A type that the user chose for the plugin turns it on as well as auto does.
            wants={
                f"{PLUGINS}.loraPlugin": "auto" if kept in (None, "disable") else kept,
                **({rank: args.max_lora_rank} if args.max_lora_rank else {}),
            },
            why="adapters are applied by the plugin",
        )
    batch, virtual = case.size_or_default("maxBatchSize"), args.max_prompt_adapter_token
    if args.enable_prompt_adapter and virtual and batch:
        yield Claim(
            rule="SET-11",
            path="spec.enablePromptAdapter",
            asked=True,
            wants={"spec.buildConfig.maxPromptEmbeddingTableSize": virtual * batch},
            why=f"{virtual} virtual tokens for each of {batch} sequences",
        )


def _types(case: Case) -> Iterator[Claim]:
    if "FP8" in (case.quantisation, case.cache_quantisation):
        weights = case.quantisation == "FP8"
        yield Claim(
            rule="BLD-5",
            path=f"spec.quantConfig.{'quantAlgo' if weights else 'kvCacheQuantAlgo'}",
            asked="FP8",
            wants={"spec.buildConfig.stronglyTyped": True},
            why="FP8 needs types as written",
        )
    if case.args.fast_build and case.quantisation in (None, "FP8"):
        yield Claim(
            rule="SET-8",
            path="spec.fastBuild",
            asked=True,
            wants={f"{PLUGINS}.manageWeights": True},
            why="a fast build keeps the weights outside the plan",
        )
    if case.quantisation == "NVFP4" and f"{PLUGINS}.gemmPlugin" not in case.written:
        yield Claim(
            rule="BLD-9",
            path="spec.quantConfig.quantAlgo",
            wants={f"{PLUGINS}.gemmPlugin": "nvfp4"},
            strength=Strength.PERFORMANCE,
            why="NVFP4 has a matrix product of its own; disable turns it off (PLG-4)",
        )
    yield from _lengths(case)


def _lengths(case: Case) -> Iterator[Claim]:
    """Defaults that do not fit what was written give way."""
    (_, length), (prompt_path, prompt) = case.size("maxSeqLen"), case.size("maxInputLen")
    if length is not None and prompt is None and length < REFERENCE["spec.buildConfig.maxInputLen"]:
        yield Claim(
            rule="BLD-2",
            path="spec.buildConfig.maxSeqLen",
            wants={prompt_path: length},
            why="a prompt is part of its sequence",
        )
    batch = case.size("maxBatchSize")[1]
    if length is not None and batch is not None and case.size("maxNumTokens")[1] is None:
        most = length * batch * (case.size_or_default("maxBeamWidth") or 1)
        if most < REFERENCE["spec.buildConfig.maxNumTokens"]:
            yield Claim(
                rule="TOK-5",
                path="spec.buildConfig.maxNumTokens",
                wants={"spec.buildConfig.maxNumTokens": most},
                why=f"all sequences at full length have {most} tokens",
            )
    best, (path, limit) = case.value("buildConfig.optNumTokens"), case.size("maxNumTokens")
    if best is not None and limit is None and best > REFERENCE["spec.buildConfig.maxNumTokens"]:
        yield Claim(
            rule="TOK-7",
            path="spec.buildConfig.optNumTokens",
            asked=best,
            wants={path: best},
            why="the step that is made fastest is a step",
        )


def _backend(case: Case) -> Iterator[Claim]:
    if case.value("pytorchBackendConfig.enableIterReqStats"):
        yield Claim(
            rule="PT-4",
            path=f"{STATISTICS}.enableIterReqStats",
            asked=True,
            wants={f"{STATISTICS}.enableIterPerfStats": True},
            why="statistics of requests are part of those of iterations",
        )


def _entry(id: str, says: str, *fields: str, outcome: Outcome = Outcome.ADJUSTS) -> Entry:
    return Entry(id=id, stage=Stage.SPEC, outcome=outcome, says=says, fields=fields)


ENTRIES: Final = (
    _entry(
        "ARB-2",
        "Chunked prefill wants prompts to attend over the paged cache.",
        "enableChunkedPrefill",
        "buildConfig.pluginConfig.usePagedContextFmha",
    ),
    _entry(
        "ARB-3",
        "StreamingLLM turns block reuse and the paged attention of prompts off (BLD-3).",
        "buildConfig.pluginConfig.streamingllm",
        "kvCacheConfig.enableBlockReuse",
    ),
    _entry(
        "ARB-5",
        "An FP8 model keeps the paged attention of prompts; it goes only where useFp8ContextFmha is written against "
        "the cache's type (Q8, Q9).",
        "quantConfig.quantAlgo",
        "buildConfig.pluginConfig.useFp8ContextFmha",
    ),
    _entry("ARB-6", "Beams turn block reuse off.", "buildConfig.maxBeamWidth", "kvCacheConfig.enableBlockReuse"),
    _entry(
        "ARB-7",
        "Block reuse wants prompts to attend over the paged cache; where they cannot, reuse is off.",
        "kvCacheConfig.enableBlockReuse",
        "buildConfig.pluginConfig.usePagedContextFmha",
    ),
    _entry(
        "FMHA-1",
        "Without fused attention for prompts there is neither a paged nor an FP8 one.",
        "buildConfig.pluginConfig.contextFmha",
    ),
    _entry(
        "FMHA-2",
        "With an FP8 cache under a model that is not FP8, prompts attend neither in FP8 nor over the paged cache.",
        "quantConfig.kvCacheQuantAlgo",
    ),
    _entry("FMHA-3", "GPUs below compute capability 8.9 have no FP8 attention.", "engine.target.computeCapability"),
    _entry(
        "FMHA-4",
        "Over the paged cache, prompts of an FP8 model attend in FP8 exactly if the cache is FP8.",
        "buildConfig.pluginConfig.useFp8ContextFmha",
    ),
    _entry("FMHA-5", "Prompts cannot attend over an INT8 cache.", "quantConfig.kvCacheQuantAlgo"),
    _entry(
        "CXX-6",
        "Logits of prompts turn block reuse off.",
        "buildConfig.gatherContextLogits",
        "kvCacheConfig.enableBlockReuse",
    ),
    _entry("SPEC-1", "Lookahead sets the build's mode and draft length (SPEC-2).", "speculativeConfig"),
    _entry("SPEC-5", "Medusa sets the build's mode and draft length.", "speculativeConfig"),
    _entry("SPEC-6", "Eagle sets the build's mode and draft length.", "speculativeConfig"),
    _entry("BLD-2", "A default for prompts gives way to a shorter sequence.", "buildConfig.maxInputLen"),
    _entry("BLD-5", "FP8 makes the network strongly typed.", "quantConfig", "buildConfig.stronglyTyped"),
    _entry(
        "BLD-7", "Eagle wants prompts to attend over the paged cache, and a batch of at most 512.", "speculativeConfig"
    ),
    _entry(
        "BLD-9",
        "NVFP4 takes its own matrix product, unless gemmPlugin is written (PLG-4).",
        "buildConfig.pluginConfig.gemmPlugin",
    ),
    _entry("SET-8", "fastBuild keeps weights outside the plan.", "fastBuild"),
    _entry("SET-10", "enableLora turns the LoRA plugin on and passes maxLoraRank on.", "enableLora", "maxLoraRank"),
    _entry(
        "SET-11",
        "Prompt adapters make the table of virtual tokens: tokens x batch.",
        "enablePromptAdapter",
        "buildConfig.maxPromptEmbeddingTableSize",
    ),
    _entry("TOK-5", "A default for tokens gives way to less than a full batch.", "buildConfig.maxNumTokens"),
    _entry("TOK-7", "A step that is made fastest raises the largest one if that is only a default.", "buildConfig"),
    _entry("PT-4", "enableIterReqStats turns enableIterPerfStats on.", "pytorchBackendConfig.enableIterReqStats"),
)
