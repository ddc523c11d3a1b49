"""Typed views of the Kubernetes objects that decisions read: what is not here, no decision depends on.

A view is made from the object's JSON by `of()`; it never fails on a field that is absent, because
objects are seen in every stage of their life.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from .names import INDEX_ANNOTATION, ORDINAL_LABEL, POD_INDEX_LABEL, REVISION_LABEL

Json = Mapping[str, Any]


def timestamp(text: str | None) -> datetime | None:
    """RFC 3339 as the API server writes it -> aware datetime."""
    return None if not text else datetime.fromisoformat(text.replace("Z", "+00:00"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Who an object is and whom it belongs to."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    created: datetime | None = None
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    controller_uid: str | None = None
    """UID of the controller owner; invariant I9 compares it with ours."""

    @classmethod
    def of(cls, obj: Json) -> Self:
        meta: Json = obj.get("metadata") or {}
        owners: Sequence[Json] = meta.get("ownerReferences") or ()
        return cls(
            name=meta.get("name", ""),
            namespace=meta.get("namespace", ""),
            uid=meta.get("uid", ""),
            generation=meta.get("generation", 0),
            resource_version=meta.get("resourceVersion", ""),
            created=timestamp(meta.get("creationTimestamp")),
            deleting="deletionTimestamp" in meta,
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            controller_uid=next((o["uid"] for o in owners if o.get("controller")), None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A Job: `complete` and `failed` are its terminal conditions, reason and message come from the failed one."""

    meta: Meta
    active: int = 0
    succeeded: int = 0
    completions: int = 1
    complete: bool = False
    failed: bool = False
    reason: str = ""
    message: str = ""
    started: datetime | None = None
    finished: datetime | None = None
    memory: str | None = None
    """What a pod of it may use: its limit, else what it asks for, as a quantity."""

    @classmethod
    def of(cls, obj: Json) -> Self:
        status: Json = obj.get("status") or {}
        true: dict[str, Json] = {c["type"]: c for c in status.get("conditions") or () if c.get("status") == "True"}
        # FailureTarget is set as soon as the verdict stands, Failed only when the last pod is gone.
        failed = true.get("Failed") or true.get("FailureTarget")
        end = true.get("Complete") or failed
        return cls(
            meta=Meta.of(obj),
            active=status.get("active", 0),
            succeeded=status.get("succeeded", 0),
            completions=(obj.get("spec") or {}).get("completions", 1),
            complete="Complete" in true,
            failed=failed is not None,
            reason=(failed or {}).get("reason", ""),
            message=(failed or {}).get("message", ""),
            started=timestamp(status.get("startTime")),
            finished=timestamp((end or {}).get("lastTransitionTime")),
            memory=_memory(obj.get("spec") or {}),
        )


def _memory(job: Json) -> str | None:
    pod: Json = (job.get("template") or {}).get("spec") or {}
    containers: Sequence[Json] = pod.get("containers") or ()
    resources: Json = (containers[0].get("resources") or {}) if containers else {}
    limit = (resources.get("limits") or {}).get("memory") or (resources.get("requests") or {}).get("memory")
    return None if limit is None else str(limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod with one container that matters (the first)."""

    meta: Meta
    phase: str = "Pending"
    node: str | None = None
    ready: bool = False
    restarts: int = 0
    index: int = 0
    """Completion index of an indexed Job's pod, ordinal of a StatefulSet's."""
    waiting_reason: str = ""
    waiting_message: str = ""
    running_since: datetime | None = None
    exit_code: int | None = None
    """Of the terminated container, else of its last termination."""
    exit_reason: str = ""
    """`OOMKilled`, `Error`, `Completed`."""
    exit_message: str = ""
    """The termination message: a `contract.Result` as JSON when the program could write it."""
    began: datetime | None = None
    """When the run of the container began that ended so."""
    finished: datetime | None = None
    scheduled: datetime | None = None
    """When it got its node."""
    unready_since: datetime | None = None
    """Since when the kubelet has found it not ready."""
    unschedulable: str = ""
    """The scheduler's words when no node fits."""
    unplaced_since: datetime | None = None
    """Since when no node was found, or a gate holds it back."""
    gated: tuple[str, ...] = ()
    """Scheduling gates that somebody has yet to lift: a queue, for example."""
    disrupted: str = ""
    """Reason of the DisruptionTarget condition."""

    @classmethod
    def of(cls, obj: Json) -> Self:
        meta, spec, status = Meta.of(obj), obj.get("spec") or {}, obj.get("status") or {}
        conditions: dict[str, Json] = {c["type"]: c for c in status.get("conditions") or ()}
        containers: Sequence[Json] = status.get("containerStatuses") or ()
        first: Json = containers[0] if containers else {}
        state: Json = first.get("state") or {}
        ended: Json = state.get("terminated") or (first.get("lastState") or {}).get("terminated") or {}
        waiting: Json = state.get("waiting") or {}
        scheduled: Json = conditions.get("PodScheduled") or {}
        scheduled_at = timestamp(scheduled.get("lastTransitionTime"))
        ready: Json = conditions.get("Ready") or {}
        stuck, gates = scheduled.get("reason") == "Unschedulable", spec.get("schedulingGates") or ()
        disruption: Json = conditions.get("DisruptionTarget") or {}
        index = meta.annotations.get(INDEX_ANNOTATION) or meta.labels.get(POD_INDEX_LABEL) or "0"
        return cls(
            meta=meta,
            phase=status.get("phase", "Pending"),
            node=spec.get("nodeName"),
            ready=ready.get("status") == "True",
            restarts=max((c.get("restartCount", 0) for c in containers), default=0),
            index=int(index),
            waiting_reason=waiting.get("reason", ""),
            waiting_message=waiting.get("message", ""),
            running_since=timestamp((state.get("running") or {}).get("startedAt")),
            exit_code=ended.get("exitCode"),
            exit_reason=ended.get("reason", ""),
            exit_message=ended.get("message", ""),
            began=timestamp(ended.get("startedAt")),
            finished=timestamp(ended.get("finishedAt")),
            scheduled=scheduled_at if scheduled.get("status") == "True" else None,
            unready_since=timestamp(ready.get("lastTransitionTime")) if ready.get("status") == "False" else None,
            unschedulable=scheduled.get("message", "") if stuck else "",
            unplaced_since=scheduled_at if stuck or gates else None,
            gated=tuple(gate.get("name", "") for gate in gates),
            disrupted=disruption.get("reason", "") if disruption.get("status") == "True" else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A StatefulSet: one replica of the model, whole or not at all."""

    meta: Meta
    ordinal: int
    revision: str
    replicas: int = 1
    ready: int = 0
    observed: bool = False
    """Whether the StatefulSet controller has seen this generation."""

    @classmethod
    def of(cls, obj: Json) -> Self:
        meta, status, spec = Meta.of(obj), obj.get("status") or {}, obj.get("spec") or {}
        return cls(
            meta=meta,
            ordinal=int(meta.labels.get(ORDINAL_LABEL, "0")),
            revision=meta.labels.get(REVISION_LABEL, ""),
            replicas=spec.get("replicas", 1),
            ready=status.get("readyReplicas", 0),
            observed=status.get("observedGeneration", 0) >= meta.generation,
        )

    @property
    def is_ready(self) -> bool:
        return self.observed and not self.meta.deleting and self.ready >= self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """A PersistentVolumeClaim."""

    meta: Meta
    phase: str = "Pending"
    access_modes: tuple[str, ...] = ()
    storage_class: str | None = None

    @classmethod
    def of(cls, obj: Json) -> Self:
        spec: Json = obj.get("spec") or {}
        return cls(
            meta=Meta.of(obj),
            phase=(obj.get("status") or {}).get("phase", "Pending"),
            access_modes=tuple(spec.get("accessModes") or ()),
            storage_class=spec.get("storageClassName"),
        )
