"""The order in which a spec is judged: what the user wrote before what follows from it."""

from __future__ import annotations

from collections.abc import Mapping as Values
from dataclasses import dataclass
from typing import Any, Final

from trtllm_engine.contract import Mapping

from ..api.problems import Adjustment, Caution, Problem
from ..api.schema import Unread
from .arbitration import Arbitrated, arbitrate
from .arbitrator import Settlement
from .claims import negotiate
from .fields import GROUP_SIZE
from .fit import judge, memory
from .memory import MemoryTable
from .options import ROOT, SIZES, nested
from .rules.case import Case
from .rules.parallel import reaching_over_nodes
from .rules.rule import Finding, Stage
from .rules.table import RULES

ORDER: Final = (Stage.SPEC, Stage.FACTS, Stage.NODES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What is wrong, what is doubtful, what was chosen; the last three need the model's facts and no problem."""

    problems: tuple[Problem, ...]
    cautions: tuple[Caution, ...]
    adjustments: tuple[Adjustment, ...]
    chosen: Arbitrated | None = None
    resolved: Values[str, Any] | None = None
    memory: MemoryTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What rules and claims say of a spec, before anything is chosen."""

    problems: tuple[Problem, ...]
    cautions: tuple[Caution, ...]
    settled: Settlement
    complete: bool
    """False: some asked for what cannot be read, and say nothing."""


def ask(case: Case) -> Answers:
    """All that can be asked about a spec, also about one that can be read in part only. It never raises."""
    found, complete = list[Finding](), True
    for rule in (rule for stage in ORDER for rule in RULES if rule.entry.stage is stage):
        try:
            found += list(rule(case))
        except Unread:
            complete = False
    try:
        settled = negotiate(case)
    except Unread:
        settled, complete = Settlement(values=case.written), False
    return Answers(
        problems=(*(finding for finding in found if isinstance(finding, Problem)), *settled.problems),
        cautions=tuple(finding for finding in found if isinstance(finding, Caution)),
        settled=settled,
        complete=complete,
    )


def examine(case: Case) -> Examination:
    """Judge a spec as far as it can be known. It never raises."""
    said = ask(case)
    problems, cautions, settled = said.problems, said.cautions, said.settled
    if problems or case.facts is None:
        return Examination(problems=problems, cautions=cautions, adjustments=settled.adjustments)
    chosen = arbitrate(case)
    misfits, doubts = judge(case, chosen.args, chosen.mapping)
    planned = case.spec.auto_parallel
    return Examination(
        problems=tuple(misfits),
        cautions=(*cautions, *doubts, *(reaching_over_nodes(chosen.mapping, case.gpus_per_node) if planned else ())),
        adjustments=(*settled.adjustments, *chosen.adjustments),
        chosen=chosen,
        resolved=None if misfits else _resolved(settled.values, chosen),
        memory=memory(case, chosen.args, chosen.mapping),
    )


def _resolved(values: Values[str, Any], chosen: Arbitrated) -> dict[str, Any]:
    """The effective arguments: written again as a spec, they mean the same and need no word."""
    args = chosen.args
    sizes = {"maxBatchSize": args.max_batch_size, "maxInputLen": args.max_input_len, "maxSeqLen": args.max_seq_len}
    planner = (f"{ROOT}.autoParallel", f"{ROOT}.autoParallelWorldSize")
    effective = {
        **{path: value for path, value in values.items() if path not in planner},
        f"{ROOT}.dtype": args.dtype,
        **({f"{ROOT}.{GROUP_SIZE}": args.quant.group_size} if args.quant and args.quant.group_size else {}),
        **{f"{SIZES}.{name}": size for name, size in sizes.items()},
        **_degrees(chosen.mapping),
    }
    return nested(effective)


def _degrees(mapping: Mapping) -> dict[str, int]:
    degrees = {
        "tensorParallelSize": mapping.tp,
        "pipelineParallelSize": mapping.pp,
        "contextParallelSize": mapping.cp,
    }
    return {f"{ROOT}.{name}": degree for name, degree in degrees.items()}
