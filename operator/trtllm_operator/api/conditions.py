"""Conditions as kstatus reads them, and the closed list of reasons that they carry."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Reason(enum.StrEnum):
    """Why something is as it is: one word for machines, `meaning` for people. Extend it knowingly."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    AS_EXPECTED = "AsExpected", "Everything is as the spec asks."
    ACCEPTED = "Accepted", "The spec is valid and will be worked on."
    INVALID_SPEC = "InvalidSpec", "The spec contradicts itself or a rule; the message names the field."
    UNSUPPORTED_BY_TOOLCHAIN = "UnsupportedByToolchain", "The toolchain cannot do what the spec asks."
    NAME_CONFLICT = "NameConflict", "An object with a name that is needed exists and belongs to somebody else."
    MODEL_NOT_FOUND = "ModelNotFound", "No model is at the path, or the hub knows no such repository or revision."
    MODEL_FORBIDDEN = "ModelForbidden", "The hub refuses the model to this token, or to none."
    MODEL_MISMATCH = "ModelMismatch", "The spec does not fit the model, or the model is not the one that was pinned."
    DOES_NOT_FIT_MEMORY = "DoesNotFitMemory", "Weights, cache and activations need more memory than the GPU has."
    NO_MATCHING_GPU = "NoMatchingGPU", "No node has the GPU that the engine is for."
    AMBIGUOUS_GPU = "AmbiguousGPU", "The engine is for one kind of GPU, and the spec does not say which."
    FETCHING_MODEL = "FetchingModel", "The model is being fetched or inspected."
    FETCH_FAILED = "FetchFailed", "The model could not be fetched or inspected."
    WAITING_FOR_VOLUME = "WaitingForVolume", "A claim is not bound yet, or does not exist."
    WAITING_FOR_BUILD_SLOT = "WaitingForBuildSlot", "As many builds run as the operator allows."
    SCALED_TO_ZERO = "ScaledToZero", "No replica is asked for."
    PAUSED = "Paused", "The strategy is paused: what runs is maintained, nothing advances."
    BUILDING_ENGINE = "BuildingEngine", "The engine is being built."
    BUILD_FAILED = "BuildFailed", "The engine could not be built; the message carries the first failing line."
    BUILD_OUT_OF_MEMORY = "BuildOutOfMemory", "A build pod needed more host memory than its limit."
    BUILD_DEADLINE_EXCEEDED = "BuildDeadlineExceeded", "The build took longer than its deadline."
    NO_SPACE = "NoSpace", "The volume is full."
    ENGINE_CORRUPT = (
        "EngineCorrupt",
        "A server found files of the engine altered. They are built once more; if that was done already, it stalls.",
    )
    ROLLING_OUT = "RollingOut", "Replicas are being brought to the target revision."
    WAITING_FOR_GPUS = "WaitingForGPUs", "Pods wait for a node with free GPUs."
    WAITING_FOR_NODE = "WaitingForNode", "Pods wait for a node with room for them; the message carries what is short."
    WAITING_FOR_SECRET = "WaitingForSecret", "A Secret that a pod refers to, or a key in it, does not exist."
    WAITING_FOR_QUOTA = "WaitingForQuota", "A quota does not allow the pods, or a scheduling gate holds them back."
    FORBIDDEN = "Forbidden", "The API server does not let the operator do something: a right, or somebody's policy."
    IMAGE_PULL_FAILING = "ImagePullFailing", "An image cannot be pulled."
    REPLICA_CRASHING = "ReplicaCrashing", "A replica keeps ending; the message carries how."
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded", "A replica did not become ready in time."
    ROLLED_BACK = "RolledBack", "The target revision failed, and the last good one serves again."
    SUSPENDED = "Suspended", "The spec says suspend: pods are gone, engines are kept."
    DELETING = "Deleting", "Something that must be gone first is still being deleted."


class ConditionType(enum.StrEnum):
    """Reconciling and Stalled are present only while they are true."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    SPEC_VALID = "SpecValid"
    ENGINE_READY = "EngineReady"
    AVAILABLE = "Available"


class Condition(BaseModel):
    """One condition, shaped like `metav1.Condition`."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    type: str = Field(max_length=63)
    """Ready, Reconciling, Stalled, SpecValid, EngineReady or Available."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: str = Field(max_length=63)
    """One word out of a closed list, for machines."""
    message: str = Field(max_length=32768)
    """One sentence, for people."""
    observed_generation: int
    """Generation of the spec that was judged."""
    last_transition_time: datetime
    """When the status last changed."""


def set_condition(
    existing: Iterable[Condition],
    type: str,
    status: bool | None,
    reason: str,
    message: str,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """`existing` with this condition in its place, or at the end. None is Unknown.

    The transition time moves only when the status does: a new reason or message alone must not look like a transition.
    """
    conditions = tuple(existing)
    word: Literal["True", "False", "Unknown"] = "Unknown" if status is None else "True" if status else "False"
    before = find_condition(conditions, type)
    since = before.last_transition_time if before and before.status == word else now.replace(microsecond=0)
    new = Condition(
        type=type,
        status=word,
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=since,
    )
    return tuple(new if c is before else c for c in conditions) if before else (*conditions, new)


def find_condition(conditions: Iterable[Condition], type: str) -> Condition | None:
    """The condition of this type."""
    return next((c for c in conditions if c.type == type), None)


def drop_condition(existing: Iterable[Condition], type: str) -> tuple[Condition, ...]:
    """`existing` without the condition of this type; Reconciling and Stalled are present only while true."""
    return tuple(c for c in existing if c.type != type)
