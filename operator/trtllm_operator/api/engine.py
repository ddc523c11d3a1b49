"""LLMEngine: the built form of a model, addressed by its content."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final, Self

from pydantic import Field

from .conditions import Condition
from .deployment import AdjustmentStatus, LLMDeploymentSpec, ProblemStatus
from .engine_options import EngineOptions
from .llm_args import EngineArgs
from .model_facts import ModelStatus
from .pods import ModelVolume, PullSecrets, Scheduling, SecretKeyReference
from .problems import Problem, Refused
from .schema import StatusModel, parse_spec, parse_status
from .tree import aliases
from .views import Json, Meta

MUTABLE_FIELDS: Final = frozenset(
    {
        "image",
        "storage",
        "retention",
        "resources",
        "deadlineSeconds",
        "hubTokenSecretRef",
        "imagePullSecrets",
        "scheduling",
    }
)
"""What can be mended: nothing here enters the engine's key. Every other field is immutable."""


class LLMEngineSpec(EngineOptions, EngineArgs):
    """What to build: the LlmArgs that affect a build, and how it is built and kept."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(sorted(aliases(LLMDeploymentSpec)), "it belongs in the LLMDeployment that serves the engine"),
        "engine": "what is in it stands directly in spec",
    }
    """What to say about fields that are not known here; those that are known are never looked up."""

    model_volume: ModelVolume | None = None
    """A volume with models; needed when model is a path."""
    hub_token_secret_ref: SecretKeyReference | None = None
    """Secret key that holds a hub token."""
    toolchain_version: str | None = Field(default=None, min_length=1, max_length=256)
    """Exact version that the toolchain must have. Default: the one in the image."""
    model_digest: str | None = Field(default=None, max_length=80, pattern=r"^(sha256:)?[0-9a-f]{64}$")
    """Digest that the model must have. Default: whatever is there."""
    image_pull_secrets: PullSecrets = ()
    """Secrets to pull the image with."""
    scheduling: Scheduling = Scheduling()
    """Where the pods that fetch and build run."""


class EnginePhase(enum.StrEnum):
    """One word for the eye; conditions are for machines."""

    PENDING = "Pending"
    FETCHING = "Fetching"
    BUILDING = "Building"
    READY = "Ready"
    CORRUPT = "Corrupt"
    FAILED = "Failed"


class EngineDisplay(StatusModel):
    """The texts of the columns; derived, written together with the facts."""

    key: str | None = None
    """The short key."""
    progress: str | None = None
    """Percent and time that remains while building, the size when ready."""


class LLMEngineStatus(StatusModel):
    """What the operator sees and does."""

    observed_generation: int | None = None
    """Generation of the spec that this status is about."""
    conditions: tuple[Condition, ...] = Field(
        default=(),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    """Ready, Reconciling, Stalled, SpecValid."""
    phase: EnginePhase | None = None
    """One word for the eye."""
    key: str | None = None
    """Hash of everything that the engine's content depends on."""
    toolchain: str | None = None
    """What builds the engine."""
    toolchain_version: str | None = None
    """Exact version of the toolchain."""
    model: ModelStatus | None = None
    """What is known about the model."""
    reference: str | None = None
    """Name of the engine with the same key whose files are used."""
    problems: tuple[ProblemStatus, ...] = ()
    """Why the spec is refused."""
    adjustments: tuple[AdjustmentStatus, ...] = ()
    """What was chosen or changed for the user."""
    percent: int | None = None
    """Progress of the build."""
    eta_seconds: int | None = None
    """Estimated seconds that remain, at the time of the last report."""
    step: str | None = None
    """What the slowest rank is doing."""
    message: str | None = None
    """What the build is doing, or how it failed."""
    bytes: int | None = None
    """Size of the engine's files."""
    ranks: int | None = None
    """Ranks that are built."""
    seconds: dict[str, float] = {}
    """Seconds of each step, of the slowest rank."""
    build_started: datetime | None = None
    """When the build began."""
    build_finished: datetime | None = None
    """When the build ended."""
    queued_since: datetime | None = None
    """Since when the build has waited for a slot: the order of the queue."""
    rebuilds: int | None = None
    """How often the files were built anew, because a server found them corrupt."""
    unreferenced_since: datetime | None = None
    """Since when nobody has referred to the engine; its retention counts from here."""
    display: EngineDisplay | None = None
    """The texts of the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMEngine:
    """An LLMEngine as it is stored; `spec` is None when it does not parse, and `problems` says why."""

    KIND: ClassVar[str] = "LLMEngine"

    meta: Meta
    spec: LLMEngineSpec | None
    problems: tuple[Problem, ...] = ()
    status: LLMEngineStatus = field(default_factory=LLMEngineStatus)
    written: Json = field(default_factory=dict)
    """The spec as it is stored."""

    @classmethod
    def of(cls, obj: Json) -> Self:
        """Never raises."""
        written: Json = obj.get("spec") or {}
        spec, problems = parse_spec(LLMEngineSpec, written)
        status = parse_status(LLMEngineStatus, obj.get("status"))
        return cls(meta=Meta.of(obj), spec=spec, problems=problems, status=status, written=written)

    @property
    def valid_spec(self) -> LLMEngineSpec:
        """The spec. Raises `Refused` with the problems if it does not parse."""
        if self.spec is None:
            raise Refused(self.problems)
        return self.spec
