"""Rules about how a model is spread over ranks, and ranks over nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trtllm_engine.contract import Mapping, ModelFacts, QuantAlgo

from ...api.engine import LLMEngineSpec
from ...api.engine_options import Device
from ...api.nodes import MEMORY_LABEL
from ...api.problems import Caution
from .. import projection
from ..capability import CAPABILITIES, MAX_RANKS, OWN, Route
from ..fields import GROUP_SIZE
from ..layout import lay_out, nearest
from ..parallel import crosses_nodes, divides, layouts
from ..quantisation import GROUP_WISE, cut, whole_groups, widths
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, invalid, mismatch, rule, unsupported

DEGREES: Final = ("tensorParallelSize", "pipelineParallelSize", "contextParallelSize")
EXPERT_DEGREES: Final = ("moeTensorParallelSize", "moeExpertParallelSize")
SHOWN_DIVISORS: Final = 12
"""More of them only make a message long."""


@rule(
    "PAR-2",
    Stage.SPEC,
    Outcome.REFUSES,
    "autoParallel chooses the degrees; none of them is written beside it (MAP-4: context parallelism included).",
    ["autoParallel", *DEGREES, *EXPERT_DEGREES],
)
def planner_alone(case: Case) -> Iterator[Finding]:
    if not case.spec.auto_parallel:
        return
    for field in (*DEGREES, *EXPERT_DEGREES):
        if case.wrote(field) and case.value(field) > 1:
            yield invalid(
                f"spec.{field}",
                f"{case.value(field)} is written, and spec.autoParallel is true, which chooses it",
                "remove one of the two; spec.autoParallelWorldSize says how many ranks there are",
            )


@rule(
    "PAR-6",
    Stage.SPEC,
    Outcome.REFUSES,
    "The ranks of a replica divide evenly over nodes; nothing is rounded down (Q3).",
    [*DEGREES, "autoParallelWorldSize", "gpusPerNode"],
)
def ranks_divide_over_nodes(case: Case) -> Iterator[Finding]:
    world, path = _ranks(case)
    if lay_out(world, case.spec.gpus_per_node) is None:
        per_node = case.spec.gpus_per_node or world
        yield invalid(
            path,
            f"{world} ranks do not divide evenly over nodes of {per_node} GPUs",
            f"the nearest numbers of ranks that do are {', '.join(map(str, nearest(world, per_node)))}",
        )


@rule("CAP-8", Stage.SPEC, Outcome.REFUSES, "The number of ranks is one that this version can serve.", list(DEGREES))
def ranks_of_this_version(case: Case) -> Iterator[Finding]:
    (world, path), mapping = _ranks(case), case.mapping
    if world > MAX_RANKS and lay_out(world, case.spec.gpus_per_node) is not None:
        product = f" ({mapping.tp} tensor x {mapping.pp} pipeline x {mapping.cp} context)"
        yield unsupported(
            path,
            f"{world} ranks{'' if case.spec.auto_parallel else product} are more than a replica may have",
            f"use at most {MAX_RANKS}",
        )


@rule(
    "INIT-7",
    Stage.SPEC,
    Outcome.WARNS,
    "autoParallelWorldSize means nothing without autoParallel.",
    ["autoParallel", "autoParallelWorldSize"],
)
def world_without_planner(case: Case) -> Iterator[Finding]:
    if case.wrote("autoParallelWorldSize") and not case.spec.auto_parallel:
        yield caution(
            "spec.autoParallelWorldSize", "has no effect: spec.autoParallel is not true; set it, or remove this"
        )


@rule(
    "MAP-2",
    Stage.SPEC,
    Outcome.REFUSES,
    "The expert degrees multiply to tensorParallelSize; one that is not written follows from the other (MAP-1).",
    list(EXPERT_DEGREES),
)
def expert_degrees(case: Case) -> Iterator[Finding]:
    tp, degrees = case.mapping.tp, [case.value(field) for field in EXPERT_DEGREES]
    given = [(field, degree) for field, degree in zip(EXPERT_DEGREES, degrees, strict=True) if degree is not None]
    if not given or case.spec.auto_parallel:
        return
    product = given[0][1] * given[-1][1] if len(given) == 2 else given[0][1]
    if (len(given) == 2 and product != tp) or tp % product:
        wrong = " x ".join(str(degree) for _, degree in given)
        yield invalid(
            f"spec.{given[0][0]}",
            f"{wrong} does not make the {tp} tensor ranks of spec.tensorParallelSize",
            f"the product of both must be {tp}; each alone may be {_divisors(tp)}",
        )


@rule(
    "MAP-5",
    Stage.SPEC,
    Outcome.REFUSES,
    "Experts and context parallelism do not go together.",
    ["moeExpertParallelSize", "contextParallelSize"],
)
def experts_without_context(case: Case) -> Iterator[Finding]:
    expert, context = case.value("moeExpertParallelSize") or 1, case.mapping.cp
    if expert > 1 and context > 1:
        yield invalid(
            "spec.moeExpertParallelSize",
            f"{expert} is not possible together with spec.contextParallelSize {context}",
            "set one of the two to 1",
        )


@rule(
    "PAR-8",
    Stage.NODES,
    Outcome.WARNS,
    "A tensor group should stay within a node.",
    ["tensorParallelSize", "gpusPerNode"],
)
def tensor_group_over_nodes(case: Case) -> Iterator[Finding]:
    yield from reaching_over_nodes(case.mapping, case.gpus_per_node)


def reaching_over_nodes(mapping: Mapping, per_node: int | None) -> Iterator[Caution]:
    """About a layout that somebody wrote, or that the planner came to."""
    if crosses_nodes(mapping, per_node):
        yield Caution(
            path="spec.tensorParallelSize",
            message=f"{mapping.tp} tensor ranks reach over nodes of {per_node} GPUs and exchange every layer over the "
            f"network: slow; tensorParallelSize {per_node} with more pipelineParallelSize stays inside a node",
            rule="PAR-8",
        )


@rule(
    "PAR-9",
    Stage.FACTS,
    Outcome.REFUSES,
    "There is a layout of the asked number of ranks that divides the model.",
    ["autoParallelWorldSize"],
)
def planner_finds_a_layout(case: Case) -> Iterator[Finding]:
    world = case.spec.auto_parallel_world_size
    if not case.spec.auto_parallel or world is None:
        return

    def possible(ranks: int) -> bool:
        return bool(layouts(case.model, ranks, case.spec.gpus_per_node, case.group))

    # What no number of ranks can share is refused for its groups, FIT-4.
    if not possible(world) and possible(1):
        near = [n for n in range(1, 2 * world) if possible(n)]
        numbers = sorted(sorted(near, key=lambda n: abs(n - world))[:3])
        yield mismatch(
            "spec.autoParallelWorldSize",
            f"{world} ranks cannot share {case.model.num_attention_heads} heads and {case.model.num_layers} layers of "
            f"{case.spec.model}",
            f"the nearest numbers of ranks that can are {', '.join(map(str, numbers))}",
        )


@rule("FIT-1", Stage.FACTS, Outcome.REFUSES, "Attention heads divide by tensorParallelSize.", ["tensorParallelSize"])
def heads_divide(case: Case) -> Iterator[Finding]:
    yield from _divides(case, "attention heads", case.model.num_attention_heads, case.mapping.tp)


@rule(
    "FIT-2",
    Stage.FACTS,
    Outcome.REFUSES,
    "Key and value heads divide by tensorParallelSize, or it by them: then each is copied to several ranks.",
    ["tensorParallelSize"],
)
def key_heads_divide(case: Case) -> Iterator[Finding]:
    heads, tp = case.model.num_key_value_heads, case.mapping.tp
    if case.model.num_attention_heads % tp == 0 and heads % tp and tp % heads:
        yield mismatch(
            "spec.tensorParallelSize",
            f"{heads} key and value heads of {case.spec.model} neither divide by {tp} nor divide it",
            f"possible are {', '.join(str(n) for n in _possible(case.model))}",
        )


@rule(
    "FIT-3",
    Stage.FACTS,
    Outcome.REFUSES,
    "The width of the feed-forward layer divides by the tensor ranks, experts by theirs.",
    ["tensorParallelSize", *EXPERT_DEGREES],
)
def widths_divide(case: Case) -> Iterator[Finding]:
    facts, (moe_tp, moe_ep) = case.model, case.mapping.expert_sizes
    if facts.experts and moe_tp * moe_ep != case.mapping.tp:
        return  # MAP-2 has said so
    if facts.experts:
        yield from _divides(case, "experts", facts.experts, moe_ep, EXPERT_DEGREES[1])
        yield from _divides(case, "columns of an expert", facts.expert_intermediate_size, moe_tp, EXPERT_DEGREES[0])
    else:
        yield from _divides(case, "columns of the feed-forward layer", facts.intermediate_size, case.mapping.tp)


@rule(
    "FIT-4",
    Stage.FACTS,
    Outcome.REFUSES,
    "A rank's share of every weight divides by the group of a group-wise scheme.",
    ["quantConfig.groupSize", "tensorParallelSize"],
    routes=frozenset({Route.TENSORRT_LLM}),
)
def groups_divide(case: Case) -> Iterator[Finding]:
    if case.quantisation not in GROUP_WISE:
        return
    facts, tp, group = case.model, case.mapping.tp, int(case.value("quantConfig.groupSize"))
    widths = {
        "attention output": facts.num_attention_heads * facts.head_dim,
        "feed-forward output": facts.intermediate_size,
    }
    for name, width in widths.items():
        if width % tp == 0 and width // tp % group:
            groups = [n for n in (32, 64, 128, 256) if all(w // tp % n == 0 for w in widths.values())]
            sizes = [n for n in _possible(facts) if n < tp and all(w % (n * group) == 0 for w in widths.values())]
            yield mismatch(
                "spec.quantConfig.groupSize",
                f"groups of {group} do not divide a rank's share of the {name} ({width} / {tp} = {width // tp})",
                " or ".join(
                    ([f"use a group of {' or '.join(map(str, groups))}"] if groups else [])
                    + ([f"tensorParallelSize {', '.join(map(str, sizes))}"] if sizes else [])
                )
                or "use a scheme without groups",
            )


@rule(
    "FIT-4",
    Stage.FACTS,
    Outcome.REFUSES,
    "On own toolchains: a rank's columns of every quantised matrix are whole groups.",
    [GROUP_SIZE, "tensorParallelSize"],
    routes=OWN,
)
def groups_stay_whole(case: Case) -> Iterator[Finding]:
    facts, mapping, group = case.model, case.mapping, case.group
    tp, (moe_tp, moe_ep) = mapping.tp, mapping.expert_sizes
    width, parts = (facts.expert_intermediate_size, moe_tp) if facts.experts else (facts.intermediate_size, tp)
    if moe_tp * moe_ep != tp or facts.num_attention_heads % tp or width % parts:
        return  # FIT-1, FIT-3 and MAP-2 have said so
    if group is None or (reads := cut(facts, mapping, group)) is None:
        return
    others = whole_groups(facts, mapping, case.quantisation or "") if case.stored is None else ()
    ranks = [n for n in range(1, tp) if divides(facts, Mapping(tp=n), group)]
    field = DEGREES[0] if ranks else GROUP_SIZE if case.wrote(GROUP_SIZE) else "quantConfig.quantAlgo"
    ways = (
        f"use {DEGREES[0]} {' or '.join(map(str, ranks))}" if ranks else "",
        f"{GROUP_SIZE} {' or '.join(map(str, others))}" if others else "",
        f"use quantConfig.quantAlgo: {QuantAlgo.W8A16}, which has no groups" if case.stored is None else "",
    )
    yield mismatch(
        f"spec.{field}" if case.stored is None or ranks else "spec.model",
        f"a rank of {tp} has {widths(facts, mapping)[reads]} columns of the matrix that reads the {reads} of "
        f"{case.spec.model}: no whole groups of {group}",
        ", or ".join(filter(None, ways)) or "use the checkpoint that is not quantised",
    )


@rule("MAP-7", Stage.FACTS, Outcome.REFUSES, "There are at least as many layers as stages.", ["pipelineParallelSize"])
def layers_for_stages(case: Case) -> Iterator[Finding]:
    if case.model.num_layers < case.mapping.pp:
        yield mismatch(
            "spec.pipelineParallelSize",
            f"{case.mapping.pp} stages are more than the {case.model.num_layers} layers of {case.spec.model}",
            f"use at most {case.model.num_layers}",
        )


@rule(
    "MAP-1",
    Stage.FACTS,
    Outcome.WARNS,
    "Expert degrees mean nothing to a model without experts.",
    list(EXPERT_DEGREES),
)
def experts_of_a_dense_model(case: Case) -> Iterator[Finding]:
    if case.model.experts == 0:
        for field in EXPERT_DEGREES:
            if case.wrote(field) and case.value(field) > 1:
                yield caution(f"spec.{field}", f"has no effect: {case.spec.model} has no experts; remove it")


@rule(
    "INIT-4",
    Stage.NODES,
    Outcome.WARNS,
    "Some node has the GPUs that a pod needs; unset gpusPerNode follows the nodes, never the operator's own.",
    ["gpusPerNode"],
)
def nodes_have_the_gpus(case: Case) -> Iterator[Finding]:
    layout = case.layout(_ranks(case)[0])
    if case.nodes is None or layout is None or not _needs_gpus(case):
        return
    most = max((node.gpus for node in case.nodes), default=0)
    path = "spec.gpusPerNode" if case.spec.gpus_per_node else _ranks(case)[1]
    if most == 0:
        remedy = "; spec.serving.device: cpu needs none" if case.route is Route.TORCH else ""
        yield caution(path, f"no node that the spec's selectors allow has a GPU: pods will wait until one has{remedy}")
    elif most < layout.gpus_per_pod:
        yield caution(
            path,
            f"a pod needs {layout.gpus_per_pod} GPUs, and the largest node has {most}: pods will wait; "
            f"set spec.gpusPerNode to {most} or less",
        )


@rule(
    "MEM-2",
    Stage.NODES,
    Outcome.WARNS,
    "Memory is checked only against GPUs whose node says how much they have.",
)
def memory_is_known(case: Case) -> Iterator[Finding]:
    if case.facts is None or not case.nodes or projection.device(case.spec) is Device.CPU:
        return
    if not any(node.gpu_memory_bytes for node in case.nodes):
        yield caution(
            "spec.model",
            f"memory was not checked: no node says how much its GPUs have; the label {MEMORY_LABEL} does (in MiB), "
            "and GPU feature discovery writes it",
        )


def _needs_gpus(case: Case) -> bool:
    """An engine by itself needs them only where it is built on the GPU that it is for."""
    if isinstance(case.spec, LLMEngineSpec):
        return CAPABILITIES[case.toolchain].builds_on_gpu
    return projection.device(case.spec) is not Device.CPU


def _ranks(case: Case) -> tuple[int, str]:
    """How many there are, and the field that says so."""
    if case.spec.auto_parallel:
        return case.spec.auto_parallel_world_size or 1, "spec.autoParallelWorldSize"
    mapping = case.mapping
    sizes = zip(DEGREES, (mapping.tp, mapping.pp, mapping.cp), strict=True)
    return mapping.world_size, next((f"spec.{name}" for name, size in sizes if size > 1), f"spec.{DEGREES[0]}")


def _divides(case: Case, what: str, size: int, parts: int, field: str = DEGREES[0]) -> Iterator[Finding]:
    if size % parts:
        field = field if case.wrote(field) else DEGREES[0]
        yield mismatch(
            f"spec.{field}",
            f"{size} {what} of {case.spec.model} do not divide by {parts}",
            f"possible are {_divisors(size)}",
        )


def _possible(facts: ModelFacts) -> list[int]:
    heads, keys = facts.num_attention_heads, facts.num_key_value_heads
    return [n for n in range(1, heads + 1) if heads % n == 0 and (keys % n == 0 or n % keys == 0)]


def _divisors(size: int) -> str:
    found = [n for n in range(1, size + 1) if size % n == 0]
    return ", ".join(map(str, found[:SHOWN_DIVISORS])) + (" and more" if len(found) > SHOWN_DIVISORS else "")


RULES: Final[tuple[Rule, ...]] = (
    planner_alone,
    ranks_divide_over_nodes,
    ranks_of_this_version,
    world_without_planner,
    expert_degrees,
    experts_without_context,
    tensor_group_over_nodes,
    planner_finds_a_layout,
    heads_divide,
    key_heads_divide,
    widths_divide,
    groups_divide,
    groups_stay_whole,
    layers_for_stages,
    experts_of_a_dense_model,
    nodes_have_the_gpus,
    memory_is_known,
)
