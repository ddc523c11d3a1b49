"""The planner behind `autoParallel`: among the layouts that divide the model, the one that communicates least.

Tensor ranks exchange every layer's result, so a tensor group stays inside a node; stages exchange one tensor per step,
so they may lie on several.
"""

from __future__ import annotations

from collections.abc import Callable

from trtllm_engine.contract import Mapping, ModelFacts

from .layout import lay_out
from .quantisation import cut


def layouts(facts: ModelFacts, world: int, gpus_per_node: int | None, group: int | None = None) -> list[Mapping]:
    """Every division of `world` ranks that the model and the nodes allow, the least communication first.

    `group`: columns of quantised matrices that stay together.
    """
    candidates = [Mapping(tp=tp, pp=world // tp) for tp in range(1, world + 1) if world % tp == 0]
    possible = [m for m in candidates if divides(facts, m, group) and lay_out(world, gpus_per_node) is not None]
    return sorted(possible, key=lambda m: (crosses_nodes(m, gpus_per_node), m.pp))


def plan(
    facts: ModelFacts,
    world: int | None,
    gpus_per_node: int | None,
    fits: Callable[[Mapping], bool],
    *,
    most: int,
    group: int | None = None,
) -> Mapping | None:
    """The first layout that fits; None: there is none.

    Without a given number of ranks it is the smallest up to `most`.
    """
    for ranks in [world] if world else range(1, most + 1):
        for mapping in layouts(facts, ranks, gpus_per_node, group):
            if fits(mapping):
                return mapping
    return None


def divides(facts: ModelFacts, mapping: Mapping, group: int | None = None) -> bool:
    """Whether ranks get equal shares of the heads, in whole groups, and the layers are enough for the stages."""
    tp, heads = mapping.tp, facts.num_key_value_heads
    whole = facts.num_attention_heads % tp == 0 and (heads % tp == 0 or tp % heads == 0)
    width = facts.expert_intermediate_size or facts.intermediate_size
    equal = whole and width % tp == 0 and mapping.pp <= facts.num_layers
    return equal and cut(facts, mapping, group) is None


def crosses_nodes(mapping: Mapping, gpus_per_node: int | None) -> bool:
    """Whether some tensor group has ranks on more than one node."""
    layout = lay_out(mapping.world_size, gpus_per_node)
    return layout is not None and layout.gpus_per_pod % mapping.tp != 0
