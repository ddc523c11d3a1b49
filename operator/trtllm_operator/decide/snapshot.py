"""Everything that a decision may look at, frozen: what the store knew at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trtllm_engine.contract import Progress

from ..api.deployment import LLMDeployment
from ..api.engine import LLMEngine
from ..api.model_facts import ModelStatus
from ..api.nodes import NodeFacts
from ..api.placement import NodeView
from ..api.views import ClaimView, GroupView, JobView, Meta, PodView
from ..resolve.defaults import Defaults
from ..resolve.revision import Frozen
from .build_slots import BuildSlots
from .gpus import Gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A Job, its pods, and the last progress line of each rank."""

    job: JobView
    pods: tuple[PodView, ...] = ()
    progress: Mapping[int, Progress] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """One LLMEngine and what surrounds it in its namespace."""

    engine: LLMEngine
    defaults: Defaults
    known_model: ModelStatus | None = None
    """Facts of exactly the model that the spec pins, learned by another object of the namespace."""
    siblings: tuple[LLMEngine, ...] = ()
    """The other engines of the namespace that are not being deleted."""
    fetch: Run | None = None
    builds: Mapping[str, Run] = field(default_factory=dict)
    """Build Jobs of the namespace by name, whoever owns them."""
    claims: Mapping[str, ClaimView] = field(default_factory=dict)
    referenced_by: tuple[str, ...] = ()
    """LLMDeployments of the namespace that need this engine's key."""
    nodes: tuple[NodeView, ...] = ()
    """On which there are pods of the Jobs."""
    servers: tuple[PodView, ...] = ()
    """Pods of the namespace that serve from this engine's files, whoever owns them."""
    slots: BuildSlots = field(default_factory=BuildSlots)
    """Who builds, and who waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSnapshot:
    """One claim that the operator made for an engine, and who needs it."""

    claim: ClaimView
    defaults: Defaults
    engines: tuple[str, ...] = ()
    """LLMEngines with its key, or of which it is not known yet."""
    users: tuple[str, ...] = ()
    """LLMDeployments that need its key, and our pods that mount it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSnapshot:
    """One LLMDeployment, its children, and the engines of its namespace."""

    deployment: LLMDeployment
    defaults: Defaults
    fetch: Run | None = None
    revisions: Mapping[str, Frozen] = field(default_factory=dict)
    """What was frozen, by revision hash."""
    records: Mapping[str, Meta] = field(default_factory=dict)
    """The ControllerRevisions by revision hash, also those that cannot be read."""
    engines: tuple[LLMEngine, ...] = ()
    groups: tuple[GroupView, ...] = ()
    pods: tuple[PodView, ...] = ()
    """Of the groups."""
    nodes: tuple[NodeView, ...] = ()
    """On which there are pods of the groups, or of the fetch Job."""
    gpu_nodes: tuple[NodeFacts, ...] | None = None
    """All nodes, for what is chosen to fit their GPUs. None: none is seen, or the target revision is frozen already."""
    sees_nodes: bool = False
    """False where the operator may not."""
    gpus: Gpus | None = None
    """None: nobody has counted; a plan says when that is needed."""
