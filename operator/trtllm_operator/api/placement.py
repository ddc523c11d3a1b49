"""What fits where: nodes with their taints and extended resources, and what pods ask of them.

GPUs are extended resources like any other (`nvidia.com/gpu`, `rdma/hca`): whole numbers under a name with a slash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from .views import Json, Meta, timestamp

Amounts = Mapping[str, int]
"""Extended resources by name."""

WHOLE: Final = re.compile(r"[0-9]{1,15}")
SHUT_OUT: Final = ("NoSchedule", "NoExecute")
"""Effects of a taint that keep pods away; PreferNoSchedule does not."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that keeps away the pods that do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node, as far as placing pods depends on it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    unready_since: datetime | None = None
    """Since when the control plane has found it not ready; None while it is ready."""
    schedulable: bool = True
    """False: cordoned."""
    taints: tuple[Taint, ...] = ()
    amounts: Amounts = field(default_factory=dict)
    """What pods may have."""

    @classmethod
    def of(cls, obj: Json) -> Self:
        spec: Json = obj.get("spec") or {}
        status: Json = obj.get("status") or {}
        meta = Meta.of(obj)
        conditions: dict[str, Json] = {c["type"]: c for c in status.get("conditions") or ()}
        ready: Json = conditions.get("Ready") or {}
        is_ready = ready.get("status", "True") == "True"
        return cls(
            name=meta.name,
            labels=meta.labels,
            ready=is_ready,
            unready_since=None if is_ready else timestamp(ready.get("lastTransitionTime")),
            schedulable=not spec.get("unschedulable", False),
            taints=tuple(
                Taint(taint.get("key", ""), taint.get("value", ""), taint.get("effect", ""))
                for taint in spec.get("taints") or ()
                if taint.get("effect") in SHUT_OUT
            ),
            amounts=_extended(status.get("allocatable") or {}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """What one pod asks for, and of which nodes."""

    amounts: Amounts
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Json] = ()

    @classmethod
    def of(cls, spec: Json) -> Self:
        """From a pod's spec."""
        return cls(
            amounts=_asked(spec),
            node_selector=spec.get("nodeSelector") or {},
            tolerations=tuple(spec.get("tolerations") or ()),
        )

    def goes_to(self, node: NodeView) -> bool:
        """Whether such a pod may run there, and the node is large enough for it when nothing else is there."""
        return (
            node.ready
            and node.schedulable
            and self.node_selector.items() <= node.labels.items()
            and all(_tolerated(taint, self.tolerations) for taint in node.taints)
            and all(node.amounts.get(name, 0) >= amount for name, amount in self.amounts.items())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod of anybody's that holds something on a node."""

    namespace: str
    name: str
    node: str
    amounts: Amounts

    @classmethod
    def of(cls, obj: Json) -> Self:
        meta, spec = Meta.of(obj), obj.get("spec") or {}
        return cls(namespace=meta.namespace, name=meta.name, node=spec.get("nodeName", ""), amounts=_asked(spec))


def _asked(spec: Json) -> Amounts:
    """Containers and sidecars together, or the largest of what runs before them: that is what the scheduler counts."""
    first: Sequence[Json] = spec.get("initContainers") or ()
    beside = [c for c in first if c.get("restartPolicy") == "Always"]
    together = _sum(_of_container(c) for c in (*(spec.get("containers") or ()), *beside))
    for container in first:
        for name, amount in _of_container(container).items():
            together[name] = max(together.get(name, 0), amount)
    return together


def _of_container(container: Json) -> dict[str, int]:
    resources: Json = container.get("resources") or {}
    return {**_extended(resources.get("limits") or {}), **_extended(resources.get("requests") or {})}


def _sum(all_amounts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for amounts in all_amounts:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def _extended(quantities: Mapping[str, Any]) -> dict[str, int]:
    return {n: int(q) for n, q in quantities.items() if "/" in n and WHOLE.fullmatch(str(q)) and int(q)}


def _tolerated(taint: Taint, tolerations: Iterable[Json]) -> bool:
    return any(
        toleration.get("effect") in (None, "", taint.effect)
        and (
            (toleration.get("operator") == "Exists" and toleration.get("key") in (None, "", taint.key))
            or (toleration.get("key") == taint.key and (toleration.get("value") or "") == taint.value)
        )
        for toleration in tolerations
    )
