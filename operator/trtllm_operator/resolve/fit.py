"""Whether a spec's ranks fit into the GPUs that they may get, and what would."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping as Values
from typing import Final

from trtllm_engine.contract import BuildArgs, Mapping

from ..api.conditions import Reason
from ..api.engine_options import Device
from ..api.problems import Caution, Problem
from . import projection
from .capability import MAX_RANKS
from .gpus import kinds
from .memory import STEP_TOKENS, Gpu, Load, MemoryTable, largest, table
from .parallel import plan
from .quantisation import GROUP_WISE
from .rules.case import Case
from .rules.rule import Entry, Outcome, Stage

KNOWN_GPUS: Final[Values[str, int]] = {
    "L4": 24,
    "L40S": 48,
    "A100-80GB": 80,
    "H100-80GB": 80,
    "H200": 141,
    "B200": 192,
}
"""GB of memory, from NVIDIA's data sheets: for the hint how many of which GPU would do."""
MOST_HINTED: Final = MAX_RANKS
"""Ranks in a hint."""
LONGEST_HINT: Final = 16777216
WIDEST_HINT: Final = 65536
ENTRIES: Final = (
    Entry(
        id="MEM-1",
        stage=Stage.NODES,
        outcome=Outcome.REFUSES,
        says="Weights, cache, activations and the runtime's share of each rank fit into its GPU, less the headroom; "
        "the operator's setting memoryFit: warn makes a warning of it.",
        fields=("buildConfig.maxBatchSize", "buildConfig.maxSeqLen", "tensorParallelSize"),
    ),
)


def load(case: Case, mapping: Mapping, dtype: str, batch: int, length: int) -> Load:
    """What this batch and length ask of the ranks."""
    own, beams = case.route.own, case.size_or_default("maxBeamWidth") or 1
    prompt, tokens = case.size("maxInputLen")[1] or length, case.size("maxNumTokens")[1]
    vocabulary = case.model.vocab_size % mapping.tp == 0 if own else case.value("embeddingParallelMode") != "NONE"
    kept = case.kept(mapping) if own else None
    groups = int(case.value("quantConfig.groupSize")) if case.quantisation in GROUP_WISE else None
    return Load(
        mapping=mapping,
        dtype=dtype,
        quant_algo=(kept.algo.value if kept else None) if own else case.quantisation,
        group_size=(kept.group_size if kept else None) if own else groups,
        as_stored=case.model.quantization is not None and not own,
        cache_algo=case.cache_quantisation,
        # Own servers hold the cache of a whole batch; TensorRT-LLM's pool takes what is free, and needs one sequence.
        sequences=batch if own else beams,
        length=length,
        step_tokens=min(STEP_TOKENS if own else tokens or STEP_TOKENS, batch * prompt),
        windowed_cache=not own,
        split_vocabulary=vocabulary,
    )


def memory(case: Case, args: BuildArgs, mapping: Mapping) -> MemoryTable:
    """Of the arguments that are built."""
    asked = load(case, mapping, args.dtype, args.max_batch_size, args.max_seq_len)
    return table(case.model, asked, judged_gpu(case))


def largest_batch(case: Case, mapping: Mapping, dtype: str, gpu: Gpu, length: int, most: int) -> int | None:
    """Sequences that fit at this length, all that grows with them counted; None: not even one."""
    return largest(lambda batch: _fits(case, mapping, dtype, gpu, batch, length), most)


def largest_length(case: Case, mapping: Mapping, dtype: str, gpu: Gpu, batch: int, most: int) -> int | None:
    """Tokens of a sequence that fit for this number of sequences; None: not even one."""
    return largest(lambda length: _fits(case, mapping, dtype, gpu, batch, length), most)


def _fits(case: Case, mapping: Mapping, dtype: str, gpu: Gpu, batch: int, length: int) -> bool:
    return bool(table(case.model, load(case, mapping, dtype, batch, length), gpu).fits)


def judged_gpu(case: Case) -> Gpu | None:
    """The GPU that must do: where pods may go to different ones, the smallest; None: no GPU is used, or known."""
    if projection.device(case.spec) is Device.CPU:
        return None
    return next(iter(kinds(case.nodes or (), case.defaults)), None)


def judge(case: Case, args: BuildArgs, mapping: Mapping) -> tuple[list[Problem], list[Caution]]:
    """A refusal or a caution for what does not fit; nothing where no GPU is known."""
    found = memory(case, args, mapping)
    if found.gpu is None or found.fits:
        return [], []
    path, message = _path(case), f"{found}, and {found.gpu}"
    hint = "; ".join(_remedies(case, args, mapping, found.gpu))
    if case.defaults.memory_fit == "warn":
        return [], [Caution(path=path, message=f"{message}; {hint}", rule="MEM-1")]
    code = Reason.DOES_NOT_FIT_MEMORY
    return [Problem(path=path, code=code, message=message, hint=hint, rule="MEM-1")], []


def _path(case: Case) -> str:
    """The written size that asks for most: batch before length before layout."""
    for name in ("maxBatchSize", "maxSeqLen"):
        path, value = case.size(name)
        if value is not None:
            return path
    return "spec.tensorParallelSize" if case.wrote("tensorParallelSize") else "spec.model"


def _remedies(case: Case, args: BuildArgs, mapping: Mapping, gpu: Gpu) -> list[str]:
    facts, remedies = case.model, []
    asked = load(case, mapping, args.dtype, args.max_batch_size, args.max_seq_len)
    batch = largest_batch(case, mapping, args.dtype, gpu, args.max_seq_len, WIDEST_HINT)
    length = largest_length(case, mapping, args.dtype, gpu, args.max_batch_size, LONGEST_HINT)
    # TensorRT-LLM's pool does not grow with the batch, so a smaller one would not help.
    for name, fitting in (("maxBatchSize", batch if case.route.own else None), ("maxSeqLen", length)):
        path, written = case.size(name)
        if written is not None and fitting is not None:
            remedies.append(f"{path} {fitting} would fit")
    others = kinds(case.nodes or (), case.defaults)[1:]
    larger = next((kind for kind in others if table(facts, asked, kind).fits), None)
    if larger is not None:
        remedies.append(
            f"so would a {larger.product}: set {projection.options_path(case.spec)}.target.gpuProduct to it"
        )
    for kind in (gpu, *_known(gpu)):
        if (other := _layout(case, asked, kind)) is not None:
            degrees = (("tensorParallelSize", other.tp), ("pipelineParallelSize", other.pp))
            said = ", ".join(f"{name} {size}" for name, size in degrees if size > 1)
            remedies.append(f"{other.world_size} x {kind.product} would do" + (f" ({said})" if said else ""))
            if kind is not gpu:
                break
    return remedies or ["no number of GPUs that this planner tries would do; ask for less"]


def _layout(case: Case, asked: Load, gpu: Gpu) -> Mapping | None:
    def fits(mapping: Mapping) -> bool:
        return bool(table(case.model, dataclasses.replace(asked, mapping=mapping), gpu).fits)

    return plan(case.model, None, case.gpus_per_node or 8, fits, most=MOST_HINTED, group=case.group)


def _known(gpu: Gpu) -> list[Gpu]:
    """Larger kinds of GPU that are sold."""
    sold = ((name, gigabytes * 10**9) for name, gigabytes in KNOWN_GPUS.items())
    larger = [(name, size) for name, size in sold if size > gpu.memory_bytes]
    return [Gpu(product=name, memory_bytes=size, headroom=gpu.headroom) for name, size in larger]
