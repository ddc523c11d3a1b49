"""What the user left open is chosen: type, layout and sizes. Every choice is told.

Only what the user wrote is ever refused for not fitting (`rules`, `fit`); here a value is always found.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from trtllm_engine.contract import BuildArgs, Mapping, QuantArgs, Target, Toolchain

from ..api.engine_options import Device
from ..api.problems import Adjustment
from . import projection
from .capability import BFLOAT16_SINCE, CAPABILITIES, MAX_RANKS
from .fields import GROUP_SIZE
from .fit import judged_gpu, largest_batch, largest_length, load
from .layout import Layout
from .memory import Gpu, table
from .options import REFERENCE, ROOT, SIZES
from .parallel import layouts, plan
from .rules.case import Case
from .rules.rule import Entry, Outcome, Stage

LONGEST_UNASKED: Final = 8192
"""Tokens of a sequence when the user names no length: a longer cache is paid for only by those who ask for it."""
BATCH_UNASKED: Final = 8
"""Sequences of a batch when the user names no number and no GPU is known."""
LARGEST_UNASKED: Final = 256
"""Sequences of a batch at most when the user names no number: a larger batch is seldom full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arbitrated:
    """Arguments with nothing left open, and how they came about."""

    args: BuildArgs
    target: Target
    mapping: Mapping
    layout: Layout
    adjustments: tuple[Adjustment, ...]


def arbitrate(case: Case) -> Arbitrated:
    """Choose for a spec that the rules have nothing against; the case has facts."""
    dtype, dtype_told = _dtype(case)
    mapping, layout_told = _layout(case, dtype)
    quant, quant_told = _quantisation(case, mapping)
    args, sizes_told = _sizes(case, dtype, mapping)
    layout = case.layout(mapping.world_size)
    assert layout is not None, "ranks that do not divide over nodes are refused"
    return Arbitrated(
        args=dataclasses.replace(args, quant=quant, load_format=projection.load_format(case.spec)),
        target=_target(case),
        mapping=mapping,
        layout=layout,
        adjustments=(*dtype_told, *layout_told, *quant_told, *sizes_told),
    )


def planned(case: Case, dtype: str) -> Mapping:
    """The layout that `autoParallel` comes to; where none fits, the first, so that the memory fit can say by how much.

    The rules have made sure that some layout divides the model.
    """
    facts, world, gpu = case.model, case.spec.auto_parallel_world_size, judged_gpu(case)
    batch, length = case.size("maxBatchSize")[1], case.size("maxSeqLen")[1]

    def fits(mapping: Mapping) -> bool:
        least = load(case, mapping, dtype, batch or 1, length or min(facts.max_position_embeddings, LONGEST_UNASKED))
        return gpu is None or bool(table(facts, least, gpu).fits)

    per_node = case.gpus_per_node
    best = plan(facts, world, per_node, fits, most=MAX_RANKS, group=case.group)
    candidates = layouts(facts, world or MAX_RANKS, per_node, case.group) or layouts(
        facts, world or 1, case.spec.gpus_per_node, case.group
    )
    return best or candidates[0]


def _target(case: Case) -> Target:
    """An engine that runs on any device is for none."""
    written = projection.options(case.spec).target.compute_capability
    return Target(compute_capability=written if CAPABILITIES[case.toolchain].targets else None)


def _dtype(case: Case) -> tuple[str, list[Adjustment]]:
    spec, facts = case.spec, case.model
    if spec.dtype not in (None, "auto"):
        return str(spec.dtype), []

    def chosen(dtype: str, reason: str, rule: str) -> tuple[str, list[Adjustment]]:
        return dtype, [Adjustment(path="spec.dtype", from_value=spec.dtype, to_value=dtype, reason=reason, rule=rule)]

    if case.toolchain is Toolchain.TORCH and projection.device(spec) is Device.CPU:
        return chosen(facts.dtype, "the checkpoint's own, because a CPU gains nothing from a shorter one", "SIZE-1")
    if facts.dtype == "float32":
        return chosen("float16", "float32 checkpoints are served as float16 unless dtype says float32", "SIZE-1")
    capability = case.capability if case.toolchain is not Toolchain.TORCH else None
    if facts.dtype == "bfloat16" and capability is not None and capability < BFLOAT16_SINCE:
        return chosen("float16", f"compute capability {capability[0]}.{capability[1]} has no bfloat16", "INIT-2")
    return facts.dtype, []


def _layout(case: Case, dtype: str) -> tuple[Mapping, list[Adjustment]]:
    if not case.spec.auto_parallel:
        return case.mapping, []
    mapping = planned(case, dtype)
    why = "autoParallel: " + (
        "one rank holds the model" if mapping.world_size == 1 else "tensor ranks inside a node, stages across"
    )
    sizes = (("tensorParallelSize", mapping.tp), ("pipelineParallelSize", mapping.pp))
    return mapping, [
        Adjustment(path=f"spec.{name}", to_value=str(size), reason=why, rule="PAR-9")
        for name, size in sizes
        if not case.wrote(name)
    ]


def _quantisation(case: Case, mapping: Mapping) -> tuple[QuantArgs | None, list[Adjustment]]:
    """What the build is to do; a checkpoint that is quantised is kept as it is."""
    kept = case.kept(mapping) if case.route.own and case.stored is None else None
    if kept is None:
        return None, []
    path, told = f"{ROOT}.{GROUP_SIZE}", list[Adjustment]()
    if kept.group_size is not None and path not in case.written and kept.group_size != REFERENCE[path]:
        why = f"the largest group of {kept.algo.value} that divides the columns that a rank has of every matrix"
        told.append(Adjustment(path=path, to_value=str(kept.group_size), reason=why, rule="QNT-7"))
    return QuantArgs(algo=kept.algo, group_size=kept.group_size), told


def _sizes(case: Case, dtype: str, mapping: Mapping) -> tuple[BuildArgs, list[Adjustment]]:
    facts, gpu, told = case.model, judged_gpu(case), list[Adjustment]()
    sequence, prompt, batch = (case.size(name)[1] for name in ("maxSeqLen", "maxInputLen", "maxBatchSize"))

    def tell(name: str, value: int, why: str, rule: str) -> None:
        told.append(Adjustment(path=f"{SIZES}.{name}", to_value=str(value), reason=why, rule=rule))

    if sequence is None:
        most = min(facts.max_position_embeddings, max(LONGEST_UNASKED, prompt or 0))
        sequence = max(_fitting_length(case, dtype, mapping, batch or 1, most, gpu), prompt or 1)
        why = f"the model's {facts.max_position_embeddings}, at most {LONGEST_UNASKED} unless asked for"
        if sequence < most:
            why = f"the most that fits: {gpu}"
        tell("maxSeqLen", sequence, why, "SIZE-2")
    if prompt is None:
        prompt = sequence
        tell("maxInputLen", prompt, "a prompt may fill the whole sequence", "SIZE-3")
    if batch is None:
        batch, why = _fitting_batch(case, dtype, mapping, sequence, gpu)
        cache = table(facts, load(case, mapping, dtype, batch, sequence)).rows[1].bytes / 2**30
        tell("maxBatchSize", batch, f"{why}; the cache of {batch} x {sequence} tokens takes "
             f"{cache:.2f} GiB", "SIZE-4")  # fmt: skip
    return BuildArgs(dtype=dtype, max_batch_size=batch, max_input_len=prompt, max_seq_len=sequence), told


def _fitting_length(case: Case, dtype: str, mapping: Mapping, batch: int, most: int, gpu: Gpu | None) -> int:
    if gpu is None:
        return most
    return largest_length(case, mapping, dtype, gpu, batch, most) or most


def _fitting_batch(case: Case, dtype: str, mapping: Mapping, length: int, gpu: Gpu | None) -> tuple[int, str]:
    if gpu is None:
        return BATCH_UNASKED, "the default"
    fitting = largest_batch(case, mapping, dtype, gpu, length, LARGEST_UNASKED)
    if fitting is None:
        return 1, "the least"
    return fitting, f"the most that fits: {gpu}" if fitting < LARGEST_UNASKED else "as many as are useful"


ENTRIES: Final = tuple(
    Entry(id=id, stage=stage, outcome=Outcome.CHOOSES, says=says, fields=fields)
    for id, stage, says, fields in (
        (
            "SIZE-1",
            Stage.FACTS,
            "dtype auto is the checkpoint's type; float32 becomes float16, except on a CPU.",
            ("dtype",),
        ),
        ("INIT-2", Stage.FACTS, "dtype auto is float16 below compute capability 8.0.", ("dtype",)),
        (
            "QNT-7",
            Stage.FACTS,
            "Unset, groups of own schemes are as large as divides the columns of every rank: 128, 64 or 32.",
            (GROUP_SIZE,),
        ),
        (
            "SIZE-2",
            Stage.NODES,
            "Unset, a sequence is as long as the model allows, at most 8192, and as fits.",
            ("buildConfig.maxSeqLen",),
        ),
        ("SIZE-3", Stage.FACTS, "Unset, a prompt may fill the whole sequence.", ("buildConfig.maxInputLen",)),
        (
            "SIZE-4",
            Stage.NODES,
            "Unset, a batch has as many sequences as fit, at most 256; 8 where no GPU is known.",
            ("buildConfig.maxBatchSize",),
        ),
        (
            "PAR-9",
            Stage.NODES,
            "autoParallel takes, of the layouts that divide the model and fit, the one with the least communication.",
            ("autoParallel", "autoParallelWorldSize"),
        ),
    )
)
