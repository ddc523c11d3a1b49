"""What decisions know about a node: whether pods may go there, and which GPUs it has.

GPU feature discovery writes what it sees into labels; a node without these labels has GPUs of an unknown kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from .views import Json, Meta

GPU_RESOURCE: Final = "nvidia.com/gpu"
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
"""In MiB."""
MAJOR_LABEL: Final = "nvidia.com/gpu.compute.major"
MINOR_LABEL: Final = "nvidia.com/gpu.compute.minor"
COUNT_LABEL: Final = "nvidia.com/gpu.count"
MIB: Final = 2**20
PLAIN_COUNT: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node. What its labels do not say is None."""

    name: str
    ready: bool = True
    schedulable: bool = True
    """False: cordoned."""
    gpu_product: str | None = None
    compute_capability: str | None = None
    """For example "8.9"."""
    gpu_memory_bytes: int | None = None
    """Of one GPU."""
    gpus: int = 0
    """That pods may have, of the resource that was asked about."""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether pods may be placed there now."""
        return self.ready and self.schedulable

    @classmethod
    def of(cls, obj: Json, resource: str = GPU_RESOURCE) -> Self:
        """From a Node's JSON; never fails on a field that is absent or a label that is no number."""
        spec: Json = obj.get("spec") or {}
        status: Json = obj.get("status") or {}
        meta = Meta.of(obj)
        conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
        major, minor = _count(meta.labels.get(MAJOR_LABEL)), _count(meta.labels.get(MINOR_LABEL))
        mebibytes = _count(meta.labels.get(MEMORY_LABEL))
        allocatable: Json = status.get("allocatable") or {}
        # Before the device plugin has registered its GPUs, the label already says how many there are.
        gpus = _count(allocatable.get(resource))
        if gpus is None and resource == GPU_RESOURCE:
            gpus = _count(meta.labels.get(COUNT_LABEL))
        return cls(
            name=meta.name,
            ready=conditions.get("Ready", "True") == "True",
            schedulable=not spec.get("unschedulable", False),
            gpu_product=meta.labels.get(PRODUCT_LABEL),
            compute_capability=None if major is None else f"{major}.{minor or 0}",
            gpu_memory_bytes=mebibytes * MIB if mebibytes else None,
            gpus=gpus or 0,
            labels=meta.labels,
        )


def _count(value: Any) -> int | None:
    return int(value) if value is not None and PLAIN_COUNT.fullmatch(str(value)) else None
