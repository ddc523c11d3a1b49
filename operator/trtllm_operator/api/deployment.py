"""LLMDeployment: a model, served."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from .conditions import Condition
from .engine_options import Device, EngineOptions
from .llm_args import LlmArgs
from .model_facts import ModelStatus
from .pods import ModelVolume, PodTemplate, Resources, Scheduling, SecretKeyReference
from .problems import Adjustment, Problem, Refused
from .schema import FIELDS_CONFLICT, ApiModel, StatusModel, parse_spec, parse_status
from .views import Json, Meta

DEFAULT_PORT: Final = 8000


class Serving(ApiModel):
    """The server in each pod."""

    image: str | None = Field(default=None, min_length=1, max_length=512)
    """Image of the server. Default: the operator's."""
    model_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_./:]*[A-Za-z0-9])?$",
    )
    """What clients call the model. Default: the object's name."""
    device: Device | None = None
    """auto (CUDA if the pod sees a GPU, else the CPU), cuda, or cpu (no GPU is requested; toolchain torch only).
    Default: auto."""
    port: int | None = Field(default=None, ge=1024, le=65535)
    """Port of the server and of the Service. Default: 8000."""
    resources: Resources = Resources()
    """Host resources of each serving pod; GPUs follow from the mapping."""
    drain_seconds: int | None = Field(default=None, ge=0, le=3600)
    """Seconds for which a terminating server still accepts requests. Default: 10."""
    startup_seconds: int | None = Field(default=None, ge=10, le=86400)
    """Seconds that loading the engine may take before the pod is restarted. Default: 1800."""


class Gpu(ApiModel):
    """How pods ask for GPUs."""

    resource_name: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    )
    """Extended resource that stands for a GPU. Default: the operator's, as installed nvidia.com/gpu."""


class StrategyType(enum.StrEnum):
    """How the replicas of a changed spec take over."""

    AUTO = "Auto"
    ROLLING_UPDATE = "RollingUpdate"
    RECREATE = "Recreate"


PERCENT_PATTERN: Final = r"^(100|[1-9]?[0-9])%$"
MOST_SURGE: Final = 1000


def _int_or_percent(value: Any) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_SURGE:
        return value
    if isinstance(value, str) and re.fullmatch(PERCENT_PATTERN, value):
        return value
    raise PydanticCustomError(
        "int_or_percent", f"it must be a whole number from 0 to {MOST_SURGE}, or a percentage such as 25%"
    )


IntOrPercent = Annotated[
    int | str,
    PlainValidator(_int_or_percent),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": PERCENT_PATTERN,
            "maxLength": 4,
            "minimum": 0,
            "maximum": MOST_SURGE,
        }
    ),
]
"""A number of replicas, or a percentage of them."""


def _conflict(fields: list[str], message: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError(FIELDS_CONFLICT, "{message}", {"message": message, "fields": fields, "hint": hint})


class Strategy(ApiModel):
    """How a changed spec is rolled out, and when it is given up. No pod sees any of it."""

    type: StrategyType | None = None
    """Auto surges where GPUs are free and replaces one by one where none are; RollingUpdate keeps to the numbers below;
    Recreate removes all old replicas first. Default: Auto."""
    max_surge: IntOrPercent | None = None
    """Replicas above the wanted number during a rollout; a percentage is rounded up. Default: 1."""
    max_unavailable: IntOrPercent | None = None
    """Replicas that may be missing during a rollout; a percentage is rounded down. Default: 0; with Auto 1, where no
    GPU is free for a surge."""
    paused: bool | None = None
    """True stops rolling out; what runs is kept running and scaled. Default: false."""
    progress_deadline_seconds: int | None = Field(default=None, ge=10, le=604800)
    """Seconds that a replica with scheduled pods may take to get ready before its revision counts as failed. Default:
    serving.startupSeconds and 600."""
    restart_budget: int | None = Field(default=None, ge=1, le=100)
    """Restarts of one pod before its revision counts as failed. Default: 3."""
    revision_history_limit: int | None = Field(default=None, ge=0, le=100)
    """Old revisions that are kept to go back to. Default: 10."""

    @model_validator(mode="after")
    def _numbers_make_sense(self) -> Self:
        nothing = (0, "0%")
        if self.type is StrategyType.RECREATE and (self.max_surge is not None or self.max_unavailable is not None):
            written = [
                f for f, v in (("maxSurge", self.max_surge), ("maxUnavailable", self.max_unavailable)) if v is not None
            ]
            raise _conflict(
                written, "has no meaning with type Recreate, which removes all old replicas first", "remove it"
            )
        if self.max_surge in nothing and self.max_unavailable in nothing:
            raise _conflict(
                ["maxUnavailable"], "is 0, and so is maxSurge: no replica could be replaced", "set one of the two to 1"
            )
        return self


class LLMDeploymentSpec(LlmArgs):
    """A model and how to serve it: LlmArgs at the top level, deployment fields beside them."""

    replicas: int = Field(default=1, ge=0, le=1000)
    """Copies of the model that serve; 0 keeps the engine and stops serving."""
    suspend: bool | None = None
    """True stops all pods and starts nothing; engines are kept. Default: false."""
    model_volume: ModelVolume | None = None
    """A volume with models; needed when model is a path."""
    hub_token_secret_ref: SecretKeyReference | None = None
    """Secret key that holds a hub token."""
    engine: EngineOptions = EngineOptions()
    """How the engine is built and kept."""
    serving: Serving = Serving()
    """The server in each pod."""
    gpu: Gpu = Gpu()
    """How pods ask for GPUs."""
    strategy: Strategy = Strategy()
    """How a changed spec is rolled out, and when it is given up."""
    scheduling: Scheduling = Scheduling()
    """Where all pods run."""
    pod_template: PodTemplate = PodTemplate()
    """The rest of a serving pod."""

    @property
    def serving_port(self) -> int:
        """The port that is used, also when the user wrote none."""
        return self.serving.port or DEFAULT_PORT


class Phase(enum.StrEnum):
    """One word for the eye; conditions are for machines."""

    PENDING = "Pending"
    FETCHING = "Fetching"
    BUILDING = "Building"
    ROLLING_OUT = "RollingOut"
    READY = "Ready"
    DEGRADED = "Degraded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


class ProblemStatus(StatusModel):
    """One refusal."""

    path: str
    """The field, as it is written in the object."""
    code: str
    """One word, for machines."""
    message: str
    """The offending value and the allowed ones."""
    hint: str | None = None
    """What to do."""
    rule: str | None = None
    """Id of the rule that refuses."""

    @classmethod
    def of(cls, problem: Problem) -> Self:
        return cls.model_validate(problem.to_dict())


class AdjustmentStatus(StatusModel):
    """A value that was chosen or changed for the user."""

    field: str
    """The field, as it is written in the object."""
    from_: str | None = Field(default=None, alias="from")
    """What the object says; absent: nothing."""
    to: str
    """What is used."""
    reason: str
    """Why."""
    rule: str | None = None
    """Id of the rule that made the change."""

    @classmethod
    def of(cls, adjustment: Adjustment) -> Self:
        written = {"from": adjustment.from_value, "to": adjustment.to_value, "reason": adjustment.reason}
        return cls.model_validate({"field": adjustment.path, **written, "rule": adjustment.rule})


class MappingStatus(StatusModel):
    """How one replica is spread over ranks, pods and GPUs."""

    tensor_parallel_size: int
    """Ranks that share each layer."""
    pipeline_parallel_size: int
    """Stages that the layers are cut into."""
    context_parallel_size: int
    """Ranks that share each sequence."""
    world_size: int
    """Ranks of a replica."""
    pods: int
    """Pods of a replica, each on a node of its own."""
    gpus_per_pod: int
    """GPUs that each pod requests."""
    gpus: int
    """GPUs of a replica."""


class FailedRevision(StatusModel):
    """A revision that was rolled out, did not get ready, and was taken back."""

    revision: str
    """Hash of the revision."""
    reason: str
    """How it failed: one word out of a closed list, for machines."""
    message: str
    """How it failed, for people."""
    at: datetime
    """When it was given up."""


class EngineReference(StatusModel):
    """The engine that the target revision uses."""

    name: str | None = None
    """Name of the LLMEngine."""
    key: str | None = None
    """Key of its content."""
    state: str | None = None
    """Phase of the LLMEngine."""
    percent: int | None = None
    """Progress of the build."""
    eta_seconds: int | None = None
    """Estimated seconds that remain, at the time of the last report."""
    message: str | None = None
    """What the build is doing."""


class DeploymentDisplay(StatusModel):
    """The texts of the columns; derived, written together with the facts."""

    ready: str | None = None
    """Ready replicas of those asked for."""
    engine: str | None = None
    """Progress, or the short key."""
    parallel: str | None = None
    """The parallel mapping."""


class LLMDeploymentStatus(StatusModel):
    """What the operator sees and does."""

    observed_generation: int | None = None
    """Generation of the spec that this status is about."""
    conditions: tuple[Condition, ...] = Field(
        default=(),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    """Ready, Reconciling, Stalled, SpecValid, EngineReady, Available."""
    phase: Phase | None = None
    """One word for the eye."""
    mapping: MappingStatus | None = None
    """How one replica is spread."""
    model: ModelStatus | None = None
    """What is known about the model."""
    engine: EngineReference | None = None
    """The engine of the target revision."""
    problems: tuple[ProblemStatus, ...] = ()
    """Why the spec is refused."""
    adjustments: tuple[AdjustmentStatus, ...] = ()
    """What was chosen or changed for the user."""
    replicas: int | None = None
    """Replicas that exist."""
    ready_replicas: int | None = None
    """Replicas that serve."""
    updated_replicas: int | None = None
    """Replicas of the target revision."""
    selector: str | None = None
    """Selects one pod per replica, for scalers."""
    current_revision: str | None = None
    """Revision that serves."""
    target_revision: str | None = None
    """Revision of the spec."""
    failed_revision: FailedRevision | None = None
    """Revision that failed and is not tried again until the spec changes."""
    url: str | None = None
    """Base address of the OpenAI-compatible API inside the cluster."""
    display: DeploymentDisplay | None = None
    """The texts of the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMDeployment:
    """An LLMDeployment as it is stored; `spec` is None when it does not parse, and `problems` says why."""

    KIND: ClassVar[str] = "LLMDeployment"

    meta: Meta
    spec: LLMDeploymentSpec | None
    problems: tuple[Problem, ...] = ()
    status: LLMDeploymentStatus = field(default_factory=LLMDeploymentStatus)
    written: Json = field(default_factory=dict)
    """The spec as it is stored."""

    @classmethod
    def of(cls, obj: Json) -> Self:
        """Never raises."""
        written: Json = obj.get("spec") or {}
        spec, problems = parse_spec(LLMDeploymentSpec, written)
        status = parse_status(LLMDeploymentStatus, obj.get("status"))
        return cls(meta=Meta.of(obj), spec=spec, problems=problems, status=status, written=written)

    @property
    def valid_spec(self) -> LLMDeploymentSpec:
        """The spec. Raises `Refused` with the problems if it does not parse."""
        if self.spec is None:
            raise Refused(self.problems)
        return self.spec
