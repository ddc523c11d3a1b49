"""How the groups of one revision take over from all others, with what the cluster has.

Turns what is seen (groups, their pods, nodes, free GPUs) into the planner's numbers, and its step back into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from ..api.conditions import Reason
from ..api.deployment import Strategy, StrategyType
from ..api.placement import PodDemand
from ..api.views import GroupView, PodView
from ..resolve.revision import Frozen
from . import rollout, runs
from .gpus import free_groups, shortage
from .health import pods_of
from .rollout import AMPLE, Group, Limits, Step
from .snapshot import DeploymentSnapshot
from .strategy import limits_of, numbers

PATIENCE: Final = timedelta(seconds=10)
"""How long a pod may be without a node before it counts as having no place: the scheduler is behind by moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """One step, and what it was decided on."""

    groups: tuple[Group, ...]
    step: Step
    asks_gpus: bool = False
    """The step depends on how many GPUs are free, and nobody has counted them."""
    note: str = ""
    """Why it goes as slowly as it does; empty if it does not."""
    shortage: str = ""
    """What is missing and who holds it, when it was counted."""
    look_again: datetime | None = None


def take_over(snapshot: DeploymentSnapshot, revision: str, wanted: int, now: datetime) -> Takeover:
    """The next step towards `wanted` groups of a frozen revision."""
    frozen, strategy = snapshot.revisions[revision], snapshot.deployment.valid_spec.strategy
    demand, pods = demand_of(frozen), frozen.resolution.pods
    groups = observed_groups(snapshot, revision, now)
    holding = sum(_holds(snapshot, group, demand) for group in snapshot.groups)
    unheld: int | None = None
    if not demand.amounts:
        capacity: int | None = AMPLE
    elif snapshot.gpus is None:
        capacity = None
    else:
        capacity = holding + free_groups(snapshot.gpus, demand, pods)
        unheld = holding + free_groups(replace(snapshot.gpus, promised=()), demand, pods)
    unplaced = len(groups) - sum(_is_placed(group, snapshot.pods) for group in snapshot.groups)

    def step(capacity: int | None) -> tuple[Limits, Step]:
        limits = limits_of(strategy, groups, wanted, capacity, unheld)
        return limits, _step(groups, wanted, strategy, limits, _room(groups, capacity, pods, unplaced))

    limits, chosen = step(capacity)
    matters = step(holding)[1] != step(AMPLE)[1] or any(g.no_room for g in groups)
    missing = shortage(snapshot.gpus, demand, pods) if snapshot.gpus is not None and demand.amounts else ""
    return Takeover(
        groups=tuple(groups),
        step=chosen,
        asks_gpus=capacity is None and snapshot.sees_nodes and matters,
        note=_note(groups, limits, strategy, bool(missing), snapshot.sees_nodes),
        shortage=missing,
        look_again=_patience_ends(snapshot.pods, now),
    )


def demand_of(frozen: Frozen) -> PodDemand:
    """What each pod of the revision's groups asks for."""
    return PodDemand.of(frozen.template["spec"])


def observed_groups(snapshot: DeploymentSnapshot, revision: str, now: datetime) -> list[Group]:
    """The planner's picture of the groups, with `revision` as the current one."""
    target = snapshot.revisions.get(revision)
    return [
        Group(
            ordinal=group.ordinal,
            current=group.revision == revision,
            ready=group.is_ready,
            deleting=group.meta.deleting,
            no_room=any(_has_no_place(pod, now) for pod in pods_of(group, snapshot.pods)),
            helps=target is None or _helps(snapshot, group, demand_of(target)),
        )
        for group in snapshot.groups
    ]


def _step(groups: Sequence[Group], wanted: int, strategy: Strategy, limits: Limits, room: int) -> Step:
    step = rollout.next_step(groups, wanted, limits, room)
    underway = any(g.deleting or g.no_room or (g.current and not g.ready) for g in groups)
    if step or underway or limits.recreate:
        return step
    # One group waits for GPUs in the open: an autoscaler, and the reader of the status, see the demand.
    return rollout.next_step(groups, wanted, replace(limits, surge=numbers(strategy, wanted)[0]), 1)


def _room(groups: Sequence[Group], capacity: int | None, pods: int, unplaced: int) -> int:
    """How many more groups may be made now, as far as GPUs go."""
    nothing_old = all(group.current for group in groups)
    if pods == 1 and (capacity is None or nothing_old):
        # Pods that wait stand in nobody's way.
        return AMPLE
    if capacity is None:
        # Two groups of several pods could each hold what the other one lacks: one after the other.
        return 0 if unplaced else 1
    return capacity - len(groups)


def _note(groups: Sequence[Group], limits: Limits, strategy: Strategy, counted: bool, sees_nodes: bool) -> str:
    if not any(not g.current and not g.deleting for g in groups):
        return ""
    no_room = any(g.no_room for g in groups)
    if strategy.type is StrategyType.ROLLING_UPDATE:
        remedy = "strategy.type Auto, or strategy.maxUnavailable: 1, would let one make room"
        return f"RollingUpdate keeps {limits.available} replicas serving; {remedy}" if no_room else ""
    if limits.recreate or limits.surge or numbers(strategy, 1)[0] == 0:
        return ""
    if no_room:
        return "one by one, because there is no room for a surge"
    if not sees_nodes:
        return "one by one, because the operator sees no nodes and cannot count free GPUs"
    return "one by one, because no GPUs are free for a surge" if counted else ""


def _has_no_place(pod: PodView, now: datetime) -> bool:
    """For want of something that other groups may hold; not for a claim that does not exist, or a wrong selector."""
    if pod.unplaced_since is not None and now < pod.unplaced_since + PATIENCE:
        return False
    if pod.gated:
        return True
    short = "insufficient" in pod.unschedulable.lower()
    return bool(pod.unschedulable) and (short or runs.unschedulable_reason(pod) is Reason.WAITING_FOR_GPUS)


def _patience_ends(pods: Sequence[PodView], now: datetime) -> datetime | None:
    ends = [pod.unplaced_since + PATIENCE for pod in pods if pod.unplaced_since is not None]
    return min((end for end in ends if end > now), default=None)


def _is_placed(group: GroupView, pods: Sequence[PodView]) -> bool:
    return any(pod.node for pod in pods_of(group, pods))


def _holds(snapshot: DeploymentSnapshot, group: GroupView, demand: PodDemand) -> bool:
    """Whether the group has, on its nodes, something of what `demand` asks for."""
    own = snapshot.revisions.get(group.revision)
    shares = own is None or any(name in demand_of(own).amounts for name in demand.amounts)
    return shares and _is_placed(group, snapshot.pods)


def _helps(snapshot: DeploymentSnapshot, group: GroupView, demand: PodDemand) -> bool:
    if not demand.amounts or not snapshot.sees_nodes:
        return True
    fitting = {node.name for node in snapshot.nodes if demand.goes_to(node)}
    on = {pod.node for pod in pods_of(group, snapshot.pods) if pod.node}
    # A group whose pods are not seen yet holds nothing that could be missed.
    return not on or (_holds(snapshot, group, demand) and bool(on & fitting))
