"""How the ranks of one replica are spread over pods."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`pods` pods with `gpus_per_pod` ranks each."""

    pods: int
    gpus_per_pod: int


def lay_out(world: int, gpus_per_node: int | None) -> Layout | None:
    """As few pods as the nodes allow, all of one size; None if the ranks do not divide evenly.

    12 ranks on nodes of 8 are 2 pods of 6; 9 are nothing. Without a number of GPUs per node, one pod holds all.
    """
    pods = -(-world // (gpus_per_node or world))
    return Layout(pods=pods, gpus_per_pod=world // pods) if world % pods == 0 else None


def nearest(world: int, gpus_per_node: int) -> list[int]:
    """The next smaller number of ranks that divides evenly, and the next two greater ones."""

    def fits(ranks: int) -> bool:
        return lay_out(ranks, gpus_per_node) is not None

    smaller = next((ranks for ranks in range(world - 1, 0, -1) if fits(ranks)), None)
    # A whole number of nodes always divides, so two greater ones lie within two more nodes.
    greater = [ranks for ranks in range(world + 1, world + 2 * gpus_per_node + 1) if fits(ranks)][:2]
    return ([smaller] if smaller else []) + greater
