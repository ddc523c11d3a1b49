"""Reads the store into the frozen pictures that decisions are made on; costs no API call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from trtllm_engine.contract import ContractError, Progress

from ..api import names
from ..api.deployment import LLMDeployment, Phase
from ..api.engine import EnginePhase, LLMEngine
from ..api.model_facts import ModelStatus
from ..api.nodes import NodeFacts
from ..api.placement import NodeView, PlacedPod, PodDemand
from ..api.views import ClaimView, GroupView, JobView, Meta, PodView
from ..decide.build_slots import Build, BuildSlots, Waiter
from ..decide.corrupt import found_corrupt
from ..decide.gpus import Gpus
from ..decide.snapshot import ClaimSnapshot, DeploymentSnapshot, EngineSnapshot, Run
from ..reconcile.store import Key, Object, Store, key_of
from ..resolve.defaults import Defaults
from ..resolve.revision import Frozen, revision_of
from ..resolve.source import check_source, source_hash

logger = logging.getLogger(__name__)

OURS: Final = (LLMDeployment.KIND, LLMEngine.KIND)


def deployment_snapshot(store: Store, obj: Object, defaults: Defaults) -> DeploymentSnapshot:
    """The deployment, its own children, and the engines of its namespace."""
    deployment = LLMDeployment.of(obj)
    owned = store.owned(deployment.meta.uid)
    sets = [child for child in owned if child["kind"] == "StatefulSet"]
    pods = tuple(pod for child in sets for pod in _pods(store, child))
    fetch = _fetch(store, deployment, owned, defaults)
    used = _used_revisions(deployment, sets)
    if deployment.spec is not None:
        used.add(revision_of(deployment))
    revisions = {frozen.hash: frozen for frozen in _revisions(owned, used)}
    return DeploymentSnapshot(
        deployment=deployment,
        defaults=defaults,
        fetch=fetch,
        revisions=revisions,
        records={meta.labels.get(names.REVISION_LABEL, ""): meta for meta in _records(owned)},
        engines=_engines(store, deployment.meta.namespace),
        groups=tuple(GroupView.of(child) for child in sets),
        pods=pods,
        nodes=_nodes_of(store, (*pods, *(fetch.pods if fetch is not None else ()))),
        gpu_nodes=_gpu_nodes(store, deployment, revisions, defaults),
        sees_nodes=bool(store.list("Node")),
    )


def gpus(store: Store, deployment: LLMDeployment, placed: Iterable[Object], about_to_be_made: Iterable[Object]) -> Gpus:
    """What there is for `deployment`: `placed` was listed lately, `about_to_be_made` are others' StatefulSets that
    are decided and not in the store yet. About our own pods the store is asked, which is never behind its groups."""
    sets = {key_of(child): child for child in (*about_to_be_made, *store.list("StatefulSet"))}
    others = [child for child in sets.values() if Meta.of(child).controller_uid != deployment.meta.uid]
    ours = (pod for pod in store.list("Pod") if _holds_a_node(pod))
    theirs = (pod for pod in placed if Meta.of(pod).labels.get(names.MANAGED_BY) != names.MANAGER)
    pods = tuple(map(PlacedPod.of, (*ours, *theirs)))
    return Gpus(
        nodes=tuple(NodeView.of(node) for node in store.list("Node")),
        placed=tuple(pod for pod in pods if pod.amounts),
        promised=tuple(demand for child in others for demand in _unplaced(store, child)),
    )


def _nodes_of(store: Store, pods: Iterable[PodView]) -> tuple[NodeView, ...]:
    on = sorted({pod.node for pod in pods if pod.node})
    return tuple(NodeView.of(node) for name in on if (node := store.get(Key("Node", "", name))) is not None)


def _gpu_nodes(
    store: Store, deployment: LLMDeployment, frozen: Collection[str], defaults: Defaults
) -> tuple[NodeFacts, ...] | None:
    spec, nodes = deployment.spec, store.list("Node")
    if spec is None or not nodes or revision_of(deployment) in frozen:
        return None
    return tuple(NodeFacts.of(node, spec.gpu.resource_name or defaults.gpu_resource) for node in nodes)


def _unplaced(store: Store, group: Object) -> Iterable[PodDemand]:
    """What the pods of a group ask for that have no node yet, or do not exist yet."""
    spec, uid = group["spec"], group["metadata"].get("uid", "")
    if Meta.of(group).deleting:
        return ()
    there = sum(bool(pod.node) for pod in (_pods(store, group) if uid else ()))
    return [PodDemand.of(spec["template"]["spec"])] * max(0, spec.get("replicas", 1) - there)


def _holds_a_node(pod: Object) -> bool:
    return PodView.of(pod).node is not None and PodView.of(pod).phase not in ("Succeeded", "Failed")


def engine_snapshot(
    store: Store, obj: Object, defaults: Defaults, about_to_be_made: Iterable[Object] = ()
) -> EngineSnapshot:
    """The engine, its Jobs, and everything of its namespace that shares or needs its content.

    `about_to_be_made`: build Jobs that are decided and not in the store yet.
    """
    engine = LLMEngine.of(obj)
    namespace = engine.meta.namespace
    jobs = store.list("Job", namespace)
    fetch = _fetch(store, engine, [job for job in jobs if Meta.of(job).controller_uid == engine.meta.uid], defaults)
    builds = {job["metadata"]["name"]: _run(store, job) for job in jobs if names.KEY_LABEL in Meta.of(job).labels}
    runs = [*builds.values(), *([fetch] if fetch is not None else [])]
    return EngineSnapshot(
        engine=engine,
        defaults=defaults,
        known_model=_known_model(store, engine, defaults),
        siblings=tuple(e for e in _engines(store, namespace) if e.meta.uid != engine.meta.uid and not e.meta.deleting),
        fetch=fetch,
        builds=builds,
        claims={
            claim["metadata"]["name"]: ClaimView.of(claim) for claim in store.list("PersistentVolumeClaim", namespace)
        },
        referenced_by=tuple(sorted(_referencing(store, namespace, engine.status.key))),
        nodes=_nodes_of(store, (pod for run in runs for pod in run.pods)),
        servers=_servers(store, namespace, engine.status.key),
        slots=_slots(store, engine, defaults, about_to_be_made),
    )


def _servers(store: Store, namespace: str, key: str | None) -> tuple[PodView, ...]:
    if key is None:
        return ()
    pods = store.by_label("Pod", namespace, names.ROLE_LABEL, "server")
    return tuple(PodView.of(pod) for pod in pods if Meta.of(pod).labels.get(names.KEY_LABEL) == names.key_label(key))


def _slots(store: Store, engine: LLMEngine, defaults: Defaults, about_to_be_made: Iterable[Object]) -> BuildSlots:
    if engine.status.phase is EnginePhase.READY:
        return BuildSlots()
    jobs = {key_of(job): job for job in (*about_to_be_made, *store.by_label("Job", None, names.ROLE_LABEL, "build"))}
    return BuildSlots(
        per_namespace=defaults.builds_per_namespace,
        per_cluster=defaults.builds_per_cluster,
        running=tuple(_build(job) for job in jobs.values() if not _has_ended(JobView.of(job))),
        waiting=tuple(_waiters(store, engine.meta.uid)),
    )


def _build(job: Object) -> Build:
    meta = Meta.of(job)
    return Build(namespace=meta.namespace, job=meta.name, engine=meta.labels.get(names.ENGINE_LABEL, meta.name))


def _has_ended(job: JobView) -> bool:
    return job.complete or job.failed


def _waiters(store: Store, myself: str) -> Iterable[Waiter]:
    for other in _queued(store):
        engine = LLMEngine.of(other)
        status = engine.status
        if engine.meta.uid != myself and not engine.meta.deleting and status.key and status.queued_since:
            yield Waiter(
                namespace=engine.meta.namespace,
                uid=engine.meta.uid,
                job=names.build_job(status.key),
                since=status.queued_since,
            )


def _queued(store: Store) -> Iterable[Object]:
    """The engines that wait for a build slot. Read without parsing: most do not."""
    return (obj for obj in store.list(LLMEngine.KIND) if (obj.get("status") or {}).get("queuedSince"))


def claim_snapshot(store: Store, obj: Object, defaults: Defaults) -> ClaimSnapshot:
    """A claim with a key's label, and everything of its namespace that may need it."""
    claim = ClaimView.of(obj)
    namespace, label = claim.meta.namespace, claim.meta.labels.get(names.KEY_LABEL, "")
    deployments = (
        deployment["metadata"]["name"]
        for deployment in store.list(LLMDeployment.KIND, namespace)
        if any(names.key_label(key) == label for key in needed_keys(store, deployment))
    )
    pods = (
        pod["metadata"]["name"]
        for pod in store.list("Pod", namespace)
        if mounts(pod, claim.meta.name) and PodView.of(pod).phase not in ("Succeeded", "Failed")
    )
    return ClaimSnapshot(
        claim=claim,
        defaults=defaults,
        engines=tuple(e.meta.name for e in _engines(store, namespace) if not e.meta.deleting and _may_have(e, label)),
        users=(*deployments, *pods),
    )


def mounts(pod: Object, claim: str) -> bool:
    """Whether a pod, whoever made it, has the claim among its volumes."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return any((volume.get("persistentVolumeClaim") or {}).get("claimName") == claim for volume in volumes)


def _may_have(engine: LLMEngine, label: str) -> bool:
    """An engine that has no key yet may get any, unless it has failed."""
    if engine.status.key is None:
        return engine.status.phase is not EnginePhase.FAILED
    return names.key_label(engine.status.key) == label


def needed_keys(store: Store, obj: Object) -> set[str]:
    """Engine keys that a deployment needs: of its target, of what serves, and of every group that still runs."""
    deployment = LLMDeployment.of(obj)
    if deployment.meta.deleting:
        return set()
    owned = store.owned(deployment.meta.uid)
    used = _used_revisions(deployment, (child for child in owned if child["kind"] == "StatefulSet"))
    return {frozen.resolution.engine_key for frozen in _revisions(owned, used)}


def _used_revisions(deployment: LLMDeployment, sets: Iterable[Object]) -> set[str]:
    """What serves, what shall serve, and what still runs."""
    status = deployment.status
    running = {GroupView.of(child).revision for child in sets}
    return running | {name for name in (status.current_revision, status.target_revision) if name is not None}


def _referencing(store: Store, namespace: str, key: str | None) -> Iterable[str]:
    if key is None:
        return
    for obj in store.list(LLMDeployment.KIND, namespace):
        if key in needed_keys(store, obj):
            yield obj["metadata"]["name"]


def _known_model(store: Store, engine: LLMEngine, defaults: Defaults) -> ModelStatus | None:
    """What a neighbour learned about exactly the model and the toolchain that the spec pins."""
    spec = engine.spec
    if spec is None or spec.model_digest is None or spec.toolchain_version is None or check_source(spec):
        return None
    parsers: dict[str, Callable[[Object], LLMDeployment | LLMEngine]]
    parsers = {LLMDeployment.KIND: LLMDeployment.of, LLMEngine.KIND: LLMEngine.of}
    for kind, parse in parsers.items():
        for obj in store.list(kind, engine.meta.namespace):
            known = parse(obj).status.model
            if known is None or known.facts.digest != spec.model_digest:
                continue
            if spec.toolchain_version in known.versions.values():
                return known.model_copy(update={"source": source_hash(spec, defaults)})
    return None


def _engines(store: Store, namespace: str) -> tuple[LLMEngine, ...]:
    return tuple(LLMEngine.of(obj) for obj in store.list(LLMEngine.KIND, namespace))


def _revisions(owned: Iterable[Object], used: Collection[str]) -> Iterable[Frozen]:
    """Only those that are asked for are read: a history may be long."""
    for child in owned:
        if child["kind"] == "ControllerRevision" and Meta.of(child).labels.get(names.REVISION_LABEL) in used:
            try:
                yield Frozen.from_data(child["data"])
            except ContractError as error:
                # Written by another version, or by hand: its groups go on serving, nothing is made from it.
                logger.warning("ControllerRevision %s cannot be read: %s", child["metadata"]["name"], error)


def _records(owned: Iterable[Object]) -> Iterable[Meta]:
    return (Meta.of(child) for child in owned if child["kind"] == "ControllerRevision")


def _fetch(store: Store, owner: LLMDeployment | LLMEngine, owned: Iterable[Object], defaults: Defaults) -> Run | None:
    if owner.spec is None or check_source(owner.spec):
        return None
    name = names.fetch_job(owner.meta.name, source_hash(owner.spec, defaults))
    return next((_run(store, job) for job in owned if job["kind"] == "Job" and job["metadata"]["name"] == name), None)


def _run(store: Store, job: Object) -> Run:
    progress: dict[int, Progress] = {}
    pods = _pods(store, job)
    for pod in pods:
        line = store.progress(Key("Pod", pod.meta.namespace, pod.meta.name))
        if line is not None:
            progress[pod.index] = line
    return Run(job=JobView.of(job), pods=pods, progress=progress)


def _pods(store: Store, controller: Object) -> tuple[PodView, ...]:
    return tuple(PodView.of(child) for child in store.owned(controller["metadata"]["uid"]) if child["kind"] == "Pod")


def concerned(store: Store, obj: Object) -> set[Key]:
    """The LLMDeployments, LLMEngines and engines' claims whose decision may change when this object does."""
    kind, meta = obj["kind"], Meta.of(obj)
    match kind:
        case LLMDeployment.KIND:
            key = LLMDeployment.of(obj).status.engine
            return {key_of(obj), *_with_key(store, meta.namespace, key.key if key else None)}
        case LLMEngine.KIND:
            engine = LLMEngine.of(obj)
            key_label = meta.labels.get(names.KEY_LABEL)
            deployments = (
                key_of(other)
                for other in store.list(LLMDeployment.KIND, meta.namespace)
                if _waits_for(other, engine.status.key, key_label)
            )
            same = _with_key(store, meta.namespace, engine.status.key)
            return {key_of(obj), *same, *deployments, *map(key_of, _queued(store)), *_left_behind(store, engine)}
        case "Node":
            return {*_rolling_out(store), *_with_pods_on(store, NodeView.of(obj))}
        case "PersistentVolumeClaim":
            return {key_of(obj), *_engine_keys(store, meta.namespace)} if names.KEY_LABEL in meta.labels else set()
        case _:
            # A pod leads to its Job or StatefulSet, and that to one of ours.
            owner = _controller(store, obj)
            found = set[Key]() if owner is None else {key_of(owner)}
            if owner is not None and owner["kind"] not in OURS:
                found = concerned(store, owner)
            return found | set(_beyond_owners(store, obj))


def _left_behind(store: Store, engine: LLMEngine) -> Iterable[Key]:
    """The claim of an engine that is gone."""
    meta, key = engine.meta, engine.status.key
    if key is not None and store.get(Key(LLMEngine.KIND, meta.namespace, meta.name)) is None:
        yield Key("PersistentVolumeClaim", meta.namespace, names.engine_claim(key))


def _beyond_owners(store: Store, obj: Object) -> Iterable[Key]:
    """Whom a build that ends gives way, and whose files a server found corrupt."""
    label = Meta.of(obj).labels.get(names.KEY_LABEL)
    if label is None:
        return
    if obj["kind"] == "Job":
        yield from map(key_of, _queued(store))
    elif obj["kind"] == "Pod" and found_corrupt(PodView.of(obj)):
        for other in store.list(LLMEngine.KIND, obj["metadata"]["namespace"]):
            if ((other.get("status") or {}).get("key") or "")[:16] == label:
                yield key_of(other)


def _rolling_out(store: Store) -> Iterable[Key]:
    """Whoever may wait for a node. Read without parsing: every node reports every few minutes."""
    return (
        key_of(other)
        for other in store.list(LLMDeployment.KIND)
        if (other.get("status") or {}).get("phase") == Phase.ROLLING_OUT
    )


def _with_pods_on(store: Store, node: NodeView) -> Iterable[Key]:
    """Whose pods are on a node that is not ready."""
    if node.ready:
        return
    for pod in store.list("Pod"):
        if pod.get("spec", {}).get("nodeName") == node.name:
            yield from concerned(store, pod)


def _waits_for(deployment: Object, key: str | None, label: str | None) -> bool:
    engine = LLMDeployment.of(deployment).status.engine
    return engine is not None and engine.key is not None and (engine.key == key or engine.key[:16] == label)


def _with_key(store: Store, namespace: str, key: str | None) -> Iterable[Key]:
    if key is None:
        return
    for obj in store.list(LLMEngine.KIND, namespace):
        if LLMEngine.of(obj).status.key == key:
            yield key_of(obj)


def _engine_keys(store: Store, namespace: str) -> Iterable[Key]:
    return (key_of(obj) for obj in store.list(LLMEngine.KIND, namespace))


def _controller(store: Store, obj: Object) -> Object | None:
    """The controller owner of an object, if the store knows it by the same UID."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            owner = store.get(Key(reference["kind"], obj["metadata"].get("namespace", ""), reference["name"]))
            return owner if owner is not None and owner["metadata"]["uid"] == reference["uid"] else None
    return None
