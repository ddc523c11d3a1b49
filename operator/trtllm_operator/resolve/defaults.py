"""Operator configuration that decisions may use: what stands in for fields that a user did not write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Self

from pydantic import Field, ValidationError

from trtllm_engine.contract import Toolchain

from ..api.pods import AccessMode, LocalReference
from ..api.schema import ApiModel, Quantity, spec_problems

VERSION: Final = "0.1.0"
"""Tag of the images that belong to this operator."""


class DefaultsError(ValueError):
    """The operator's configuration file is wrong; the text names every field."""


class Defaults(ApiModel):
    """The operator's configuration; the chart writes it as one YAML file in camelCase."""

    engine_image: str = Field(default=f"trtllm-engine:{VERSION}", min_length=1)
    """Image that fetches, inspects and builds."""
    serving_image: str | None = Field(default=None, min_length=1)
    """Image that serves; absent: the engine image."""
    image_pull_policy: str = Field(default="IfNotPresent", pattern="^(Always|IfNotPresent|Never)$")
    """Of every pod that the operator makes."""
    image_pull_secrets: tuple[LocalReference, ...] = ()
    """Secrets, in each namespace that is used, to pull the two images with; a spec adds its own."""
    toolchain: Toolchain = Toolchain.TORCH
    """What builds an engine when the spec names nothing: the one that serves everywhere in this version."""
    gpu_resource: str = Field(default="nvidia.com/gpu", min_length=1)
    """Extended resource that stands for a GPU."""
    storage_class: str | None = Field(default=None, min_length=1)
    """Of engine claims; absent: the cluster's default."""
    access_modes: tuple[AccessMode, ...] = Field(default=(AccessMode.READ_WRITE_ONCE,), min_length=1)
    """Of engine claims and of the cache claim."""
    cache_storage_class: str | None = Field(default=None, min_length=1)
    """Of the claim that caches hub models in each namespace; absent: the cluster's default."""
    cache_size: Quantity = "100Gi"
    """Of the claim that caches hub models in each namespace."""
    hub_endpoint: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    """A mirror of the hub; absent: the hub itself."""
    fetch_environment: dict[str, str] = {}
    """Environment of the pods that fetch, for a proxy: HTTPS_PROXY, NO_PROXY. Not for secrets."""
    build_cpu: Quantity = "500m"
    """CPU request of a pod that builds."""
    build_memory: Quantity = "2Gi"
    """Memory request of a pod that builds; a limit is set only by a spec. Where it is not set: more, if the model's
    size needs more by the estimate."""
    build_deadline_seconds: int = Field(default=21600, ge=60)
    """Seconds that a build may take."""
    builds_per_namespace: int = Field(default=2, ge=0)
    """Builds that run at the same time in a namespace; 0: as many as are asked for."""
    builds_per_cluster: int = Field(default=8, ge=0)
    """Builds that run at the same time in all watched namespaces; 0: as many as are asked for."""
    fetch_deadline_seconds: int = Field(default=21600, ge=60)
    """Seconds that fetching a model may take."""
    memory_headroom: float = Field(default=0.1, ge=0, lt=1)
    """Share of a GPU's memory that stays free when a model is fitted into it."""
    memory_fit: Literal["refuse", "warn"] = "refuse"
    """What comes of a model that does not fit by the estimate: the spec is refused, or its author is warned."""
    retention_seconds: int = Field(default=604800, ge=0)
    """How long an engine that the operator made is kept after its last user is gone: 7 days."""

    @classmethod
    def load(cls, data: Mapping[str, object] | None) -> Self:
        """From a parsed configuration file; nothing at all is fine. Raises `DefaultsError` naming every wrong field."""
        try:
            return cls.model_validate(data or {})
        except ValidationError as error:
            problems = spec_problems(cls, error, data, where="config")
            raise DefaultsError("\n".join(map(str, problems))) from error
