"""What would happen for an LLMDeployment: pure, from what is known about the model, the nodes and the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..api.deployment import LLMDeploymentSpec
from ..api.engine import EnginePhase
from ..api.engine_options import Device
from ..api.nodes import NodeFacts
from ..decide.deployment import find_engine
from ..decide.rollout import AMPLE, Group, Limits
from ..decide.strategy import limits_of
from ..resolve import projection
from ..resolve.capability import CAPABILITIES
from ..resolve.defaults import Defaults
from ..resolve.gpus import matching
from ..resolve.layout import lay_out
from ..resolve.resolution import Resolution
from ..resolve.revision import refresh_of, revision_hash
from ..resolve.storage import engine_storage
from .observed import Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How the model is spread."""

    count: int
    pods: int
    """Of one replica."""
    gpus_per_pod: int
    parallel: str

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return self.pods * self.gpus_per_pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Where the engine comes from."""

    action: str
    """build, reuse, wait, or unknown."""
    key: str | None
    toolchain: str
    text: str
    storage: str | None = None
    changed: tuple[str, ...] = ()
    """Parts of the key in which it differs from the engine that serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the nodes have for it."""

    nodes: int
    """That the pods may run on."""
    gpus: int
    replicas: int
    """That fit there if nothing else runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The answer of `llmd plan`."""

    revision: str
    change: str
    """What becomes of the replicas."""
    replicas: Replicas
    engine: Engine
    room: Room | None
    limits: Limits
    """Of replacing all replicas by those of another revision."""
    rollout: str
    downtime: bool
    """Whether there is a time without a ready replica while a revision is replaced."""

    @property
    def most_gpus(self) -> int:
        """While a revision is replaced."""
        return self.replicas.gpus * (self.replicas.count + self.limits.surge)

    def to_json(self) -> dict[str, Any]:
        r, e = self.replicas, self.engine
        return {
            "revision": self.revision,
            "change": self.change,
            "replicas": r.count,
            "podsPerReplica": r.pods,
            "gpusPerPod": r.gpus_per_pod,
            "gpus": r.gpus * r.count,
            "gpusWhileReplacing": self.most_gpus,
            "engine": {
                "action": e.action,
                "key": e.key,
                "toolchain": e.toolchain,
                "storage": e.storage,
                "changed": list(e.changed),
            },
            "room": None
            if self.room is None
            else {"nodes": self.room.nodes, "gpus": self.room.gpus, "replicas": self.room.replicas},
            "rollout": self.rollout,
            "downtime": self.downtime,
        }


def look_ahead(
    spec: LLMDeploymentSpec,
    resolution: Resolution | None,
    *,
    exact: bool,
    defaults: Defaults,
    nodes: Sequence[NodeFacts] | None,
    observed: Observed | None,
) -> Outlook:
    """`resolution` None: the model is not known; `exact`: its key is that of the checkpoint."""
    replicas = _replicas(spec, resolution)
    room = None if nodes is None else _room(spec, replicas, nodes)
    known = observed.deployment if observed is not None else None
    # Applying a manifest leaves the annotation of a refresh where it is.
    revision = revision_hash(spec, refresh_of(known) if known is not None else None)
    limits = _limits(spec, room)
    return Outlook(
        revision=revision,
        change=_change(spec, revision, observed),
        replicas=replicas,
        engine=_engine(spec, resolution, exact=exact, defaults=defaults, observed=observed),
        room=room,
        limits=limits,
        rollout=_rollout(spec, replicas, room, limits),
        downtime=bool(spec.replicas) and not limits.available,
    )


def _replicas(spec: LLMDeploymentSpec, resolution: Resolution | None) -> Replicas:
    mapping = resolution.mapping if resolution else projection.mapping(spec)
    layout = lay_out(mapping.world_size, spec.gpus_per_node)
    assert layout is not None, "a spec whose ranks do not divide is refused"
    on_cpu = projection.device(spec) is Device.CPU
    degrees = (("tp", mapping.tp), ("pp", mapping.pp), ("cp", mapping.cp))
    return Replicas(
        count=spec.replicas,
        pods=resolution.pods if resolution else layout.pods,
        gpus_per_pod=resolution.gpus_per_pod if resolution else 0 if on_cpu else layout.gpus_per_pod,
        parallel="·".join(f"{name}{size}" for name, size in degrees if size > 1 or name == "tp"),
    )


def _engine(
    spec: LLMDeploymentSpec,
    resolution: Resolution | None,
    *,
    exact: bool,
    defaults: Defaults,
    observed: Observed | None,
) -> Engine:
    toolchain = projection.toolchain(spec, defaults)
    if resolution is None or not exact:
        storage = engine_storage(resolution) if resolution else None
        text = "build or reuse depends on the checkpoint's digest, which the operator's first look gives (--facts)"
        return Engine(action="unknown", key=None, toolchain=toolchain.value, text=text, storage=storage)
    key, storage = resolution.engine_key, engine_storage(resolution)
    where = "the node with the target GPU" if CAPABILITIES[toolchain].builds_on_gpu else "any node"
    text = f"built by {resolution.mapping.world_size} pod(s) on {where}, unless the namespace has one with this key"
    if observed is None:
        return Engine(action="build", key=key, toolchain=toolchain.value, text=text, storage=storage)
    changed = tuple(_changed_parts(resolution, observed))
    engine = find_engine(observed.engines, key)
    if engine is None:
        text = f"built by {resolution.mapping.world_size} pod(s) on {where}"
        return Engine(action="build", key=key, toolchain=toolchain.value, text=text, storage=storage, changed=changed)
    ready = engine.status.phase is EnginePhase.READY
    state = "ready" if ready else f"{(engine.status.phase or EnginePhase.PENDING).value}"
    return Engine(
        action="reuse" if ready else "wait",
        key=key,
        toolchain=toolchain.value,
        text=f"{engine.meta.name} of this namespace has the same key and is {state}",
        storage=storage,
        changed=changed,
    )


def _changed_parts(resolution: Resolution, observed: Observed) -> Iterator[str]:
    """What makes the key another one than that of what serves."""
    deployment = observed.deployment
    serving = observed.revisions.get((deployment.status.current_revision or "") if deployment else "")
    if serving is None:
        return
    before, after = _key_parts(serving.resolution), _key_parts(resolution)
    for name in after:
        if before.get(name) != after[name]:
            yield f"{name}: {before.get(name)} -> {after[name]}"


def _key_parts(resolution: Resolution) -> Mapping[str, Any]:
    args: Mapping[str, Any] = resolution.args.to_dict()
    return {
        "model": resolution.facts.commit or resolution.facts.digest,
        **args,
        **resolution.mapping.to_dict(),
        "toolchain": resolution.toolchain.value,
        "toolchainVersion": resolution.toolchain_version,
        "computeCapability": resolution.target.compute_capability,
    }


def _room(spec: LLMDeploymentSpec, replicas: Replicas, nodes: Sequence[NodeFacts]) -> Room:
    if not replicas.gpus_per_pod:
        usable = [node for node in nodes if node.usable and selected(spec, node)]
        return Room(nodes=len(usable), gpus=0, replicas=AMPLE if usable else 0)
    usable = [node for node in matching(spec, nodes) if node.usable]
    slots = [node.gpus // replicas.gpus_per_pod for node in usable]
    # A node serves a replica once: n replicas fit if every node, counted at most n times, gives them their pods.
    most = sum(slots) // replicas.pods
    fit = next(n for n in range(most, -1, -1) if sum(min(slot, n) for slot in slots) >= n * replicas.pods)
    return Room(nodes=len(usable), gpus=sum(node.gpus for node in usable), replicas=fit)


def selected(spec: LLMDeploymentSpec, node: NodeFacts) -> bool:
    """Whether the node has the labels that the spec asks for."""
    return all(node.labels.get(name) == value for name, value in spec.scheduling.node_selector.items())


def _limits(spec: LLMDeploymentSpec, room: Room | None) -> Limits:
    serving = [Group(ordinal=n, current=False, ready=True) for n in range(spec.replicas)]
    # Without nodes the strategy is shown as it is where nothing limits it.
    capacity = AMPLE if room is None else room.replicas
    return limits_of(spec.strategy, serving, spec.replicas, capacity)


def _change(spec: LLMDeploymentSpec, revision: str, observed: Observed | None) -> str:
    """What becomes of what is there."""
    if observed is None:
        return "not compared with a cluster (--context)"
    if observed.deployment is None:
        return "a new deployment: the namespace has none of this name"
    before = observed.deployment.status.current_revision
    ready = sum(group.is_ready for group in observed.groups)
    if before != revision:
        return f"revision {before or 'none'} ({ready} ready) is replaced by {revision}"
    more = spec.replicas - len(observed.groups)
    scaled = f"; {abs(more)} replica(s) {'more' if more > 0 else 'fewer'}" if more else ""
    return f"no pod is replaced: revision {revision} serves already ({ready} ready){scaled}"


def _rollout(spec: LLMDeploymentSpec, replicas: Replicas, room: Room | None, limits: Limits) -> str:
    """How a revision is replaced, in words."""
    if not spec.replicas:
        return "no replica is asked for; engines are kept"
    if room is not None and room.replicas < spec.replicas:
        return f"only {room.replicas} of {spec.replicas} replicas find GPUs on these nodes; the others wait for them"
    if limits.recreate:
        return "all old replicas are removed first"
    if not limits.surge:
        return "no room for one more: one replica at a time makes room for its successor"
    text = f"up to {limits.surge} new beside the old ones"
    if not replicas.gpus:
        return text
    free = ", if they are free; else one at a time makes room" if room is None else ""
    return f"{text}, which takes {replicas.gpus * limits.surge} GPU(s) more for a time{free}"
