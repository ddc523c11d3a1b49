"""The GPUs that a spec's pods may get, as far as nodes are known."""

from __future__ import annotations

from collections.abc import Sequence

from ..api.nodes import NodeFacts
from . import projection
from .defaults import Defaults
from .memory import Gpu
from .projection import Spec


def matching(spec: Spec, nodes: Sequence[NodeFacts]) -> tuple[NodeFacts, ...]:
    """The nodes with GPUs that the spec's selectors allow; cordoned ones too, because they come back."""
    target, selector = projection.options(spec).target, spec.scheduling.node_selector
    return tuple(
        node
        for node in nodes
        if node.gpus > 0
        and target.gpu_product in (None, node.gpu_product)
        and (target.compute_capability is None or node.compute_capability in (None, target.compute_capability))
        and all(node.labels.get(name) == value for name, value in selector.items())
    )


def kinds(nodes: Sequence[NodeFacts], defaults: Defaults) -> list[Gpu]:
    """Each kind of GPU once, the smallest memory first; nodes that do not say how much they have are left out."""
    known = {(n.gpu_memory_bytes, n.gpu_product or n.name) for n in nodes if n.gpu_memory_bytes}
    return [
        Gpu(product=product, memory_bytes=memory, headroom=defaults.memory_headroom)
        for memory, product in sorted(known)
        if memory is not None
    ]
