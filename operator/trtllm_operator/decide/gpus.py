"""For how many groups there are GPUs: arithmetic over nodes, pods, and what is promised to others.

What a group that is not placed yet will take counts as taken, so that two deployments never count the same GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..api.placement import NodeView, PlacedPod, PodDemand

NAMED_HOLDERS: Final = 4
"""Pods that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The nodes, who holds what on them, and what others were promised."""

    nodes: tuple[NodeView, ...]
    placed: tuple[PlacedPod, ...]
    """Every pod of the cluster that has a node and has not ended."""
    promised: tuple[PodDemand, ...] = ()
    """One for each pod of other deployments that has no node yet."""


def free_groups(gpus: Gpus, demand: PodDemand, pods: int) -> int:
    """How many groups of `pods` pods, each on a node of its own, find room beside what is held and promised."""
    left = {node.name: _left(node, gpus.placed) for node in gpus.nodes}
    for promise in gpus.promised:
        _take(gpus.nodes, left, promise)
    slots = [_slots(left[node.name], demand) for node in gpus.nodes if demand.goes_to(node)]
    if pods == 1:
        return sum(slots)
    # A node serves a group once: n groups fit if every node, counted at most n times, gives n * pods places.
    return max(n for n in range(sum(slots) // pods + 1) if sum(min(slot, n) for slot in slots) >= n * pods)


def shortage(gpus: Gpus, demand: PodDemand, pods: int) -> str:
    """What is missing, and who holds it, in one sentence."""
    nodes = {node.name: node for node in gpus.nodes if demand.goes_to(node)}
    parts = []
    for name, amount in sorted(demand.amounts.items()):
        each = f"{amount} {name}" if pods == 1 else f"{amount} {name} on each of {pods} nodes"
        total = sum(node.amounts.get(name, 0) for node in nodes.values())
        held = [pod for pod in gpus.placed if pod.node in nodes and name in pod.amounts]
        free = total - sum(pod.amounts[name] for pod in held)
        parts.append(f"a replica needs {each}; {free} of {total} are free on {len(nodes)} node(s) that match")
        if held:
            parts.append(f"held by {_named(held, name)}")
    return "; ".join(parts)


def _named(held: Sequence[PlacedPod], resource: str) -> str:
    most = sorted(held, key=lambda pod: (-pod.amounts[resource], pod.namespace, pod.name))
    shown = ", ".join(f"{pod.namespace}/{pod.name} ({pod.amounts[resource]})" for pod in most[:NAMED_HOLDERS])
    rest = len(most) - NAMED_HOLDERS
    return shown + (f" and {rest} more" if rest > 0 else "")


def _left(node: NodeView, placed: Sequence[PlacedPod]) -> dict[str, int]:
    left = dict(node.amounts)
    for pod in placed:
        if pod.node == node.name:
            for name, amount in pod.amounts.items():
                left[name] = left.get(name, 0) - amount
    return left


def _take(nodes: Sequence[NodeView], left: dict[str, dict[str, int]], promise: PodDemand) -> None:
    """Off the fullest node that still has room, as a scheduler that packs would; nowhere if there is none."""
    fitting = [node for node in nodes if promise.goes_to(node) and _slots(left[node.name], promise) > 0]
    if fitting:
        best = min(fitting, key=lambda node: (_slots(left[node.name], promise), node.name))
        for name, amount in promise.amounts.items():
            left[best.name][name] -= amount


def _slots(left: Mapping[str, int], demand: PodDemand) -> int:
    return min((max(0, left.get(name, 0)) // amount for name, amount in demand.amounts.items()), default=0)
