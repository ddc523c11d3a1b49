"""The few pod-shaped fields that specs have: our own narrow types, so that no field reaches the host."""

from __future__ import annotations

import enum
from typing import Annotated, Literal

from pydantic import Field

from .schema import ApiModel, LabelMap, ObjectName, Quantity


class ClaimReference(ApiModel):
    """A PersistentVolumeClaim of the same namespace."""

    claim_name: ObjectName
    """Name of a PersistentVolumeClaim in the object's namespace."""


class ModelVolume(ApiModel):
    """A volume with models, mounted read-only at `/models` into the pods that fetch, inspect and build."""

    persistent_volume_claim: ClaimReference
    """The claim that holds the models."""
    read_only: bool | None = None
    """Only true is possible, and it is the default: models are never written."""


class SecretKeyReference(ApiModel):
    """One key of a Secret of the same namespace."""

    name: ObjectName
    """Name of a Secret in the object's namespace."""
    key: str = Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")
    """Key in the Secret's data."""


class LocalReference(ApiModel):
    """An object of the same namespace."""

    name: ObjectName
    """Name of a Secret in the object's namespace."""


PullSecrets = Annotated[tuple[LocalReference, ...], Field(max_length=16)]


class Resources(ApiModel):
    """Host resources of a container. GPUs are not named here: their number follows from the parallel mapping."""

    requests: dict[str, Quantity] = Field(default={}, max_length=16)
    """What the scheduler sets aside, by resource name."""
    limits: dict[str, Quantity] = Field(default={}, max_length=16)
    """What the container may not exceed, by resource name."""


class Toleration(ApiModel):
    """A taint that the pods tolerate, as in a pod's spec."""

    key: str | None = Field(default=None, max_length=317)
    """Key of the taint; left out, with operator Exists: every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """Exists or Equal. Default: Equal."""
    value: str | None = Field(default=None, max_length=63)
    """Value of the taint, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; left out: every effect."""
    toleration_seconds: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """Seconds for which a NoExecute taint is tolerated."""


class Scheduling(ApiModel):
    """Where pods run: also the pods that fetch and build, so that a volume lands where its later users are."""

    node_selector: LabelMap = {}
    """Labels that a node must have."""
    tolerations: tuple[Toleration, ...] = Field(default=(), max_length=32)
    """Taints that the pods tolerate."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods."""


class AccessMode(enum.StrEnum):
    """How a volume may be mounted."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class Storage(ApiModel):
    """The claim that holds an engine."""

    size: Quantity | None = None
    """Requested size. Default: twice the weights in the engine's dtype and 1Gi, in whole Gi."""
    storage_class_name: ObjectName | None = None
    """StorageClass. Default: the operator's, else the cluster's."""
    access_modes: tuple[AccessMode, ...] = Field(default=(), max_length=3)
    """Access modes. Default: the operator's (ReadWriteOnce). ReadWriteMany serves on several nodes."""


class PodTemplate(ApiModel):
    """The safe rest of a serving pod."""

    labels: LabelMap = {}
    """Labels added to the serving pods; the operator's own keys are refused."""
    annotations: dict[str, Annotated[str, Field(max_length=4096)]] = Field(default={}, max_length=64)
    """Annotations added to the serving pods; the operator's own keys are refused."""
    image_pull_secrets: PullSecrets = ()
    """Secrets to pull the images with, for every pod."""
    termination_grace_period_seconds: int | None = Field(default=None, ge=1, le=86400)
    """Seconds between TERM and KILL. Default: serving.drainSeconds and 60."""
