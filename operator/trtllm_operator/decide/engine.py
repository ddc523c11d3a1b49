"""Decide for one LLMEngine: an ordered list of checks, the first that has something to say is the plan.

    model known -> key -> an elder with the same key? -> claim -> a slot -> build Job -> ready -> corrupt?

The key names the claim and the build Job, so whoever asks for the same content meets the same objects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from trtllm_engine.contract import Toolchain

from ..api import names
from ..api.conditions import Reason
from ..api.engine import EnginePhase, LLMEngine, LLMEngineStatus
from ..api.model_facts import ModelStatus
from ..api.problems import Problem, Refused
from ..api.views import ClaimView, Meta
from ..desired import build_job, cache_claim, engine_claim, fetch_job
from ..resolve.resolution import Resolution, resolve
from ..resolve.review import review_object
from ..resolve.source import source_hash
from . import runs
from .build_slots import Waiter, standing
from .corrupt import corruption, rebuild_of
from .leftovers import lost_pods, next_loss
from .plan import Action, Course, Create, Delete, Plan, Verdict
from .snapshot import EngineSnapshot, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan(Plan):
    """A plan, and the facts that status shows beside the verdict."""

    model: ModelStatus | None = None
    resolution: Resolution | None = None
    build: Run | None = None
    """The Job whose progress or result is shown."""
    elder: LLMEngine | None = None
    """The engine whose files are used, when it is another one."""
    rebuilds: int = 0
    """How often the files were built anew, this time included, because they were corrupt."""
    queued_since: datetime | None = None
    """Since when the build waits for a slot, if it does."""
    unreferenced_since: datetime | None = None
    problems: tuple[Problem, ...] = ()
    """Why the spec is refused; empty: it is not."""


def decide_engine(snapshot: EngineSnapshot, now: datetime) -> EnginePlan:
    """Choose the next actions for one engine; pure."""
    plan = _decide(snapshot, now)
    pods, nodes = plan.build.pods if plan.build is not None else (), snapshot.nodes
    moments = [moment for moment in (plan.look_again, next_loss(pods, nodes, now)) if moment is not None]
    return replace(plan, actions=(*lost_pods(pods, nodes, now), *plan.actions), look_again=min(moments, default=None))


def _decide(snapshot: EngineSnapshot, now: datetime) -> EnginePlan:
    engine = _as_resolved(snapshot.engine)
    snapshot = replace(snapshot, engine=engine)
    problems = review_object(engine, snapshot.defaults).problems
    if engine.spec is None or problems:
        return EnginePlan(verdict=stalled(Refused(problems)), problems=problems)
    model = known_model(snapshot)
    if model is None:
        return _learn_model(snapshot)
    try:
        resolution = resolve(engine.spec, model.facts, model.versions, snapshot.defaults)
    except Refused as refused:
        return EnginePlan(verdict=stalled(refused), problems=refused.problems, model=model)
    if (elder := _elder(snapshot, resolution.engine_key)) is not None:
        return _follow(elder, model, resolution)
    return _build(snapshot, model, resolution, now)


def _as_resolved(engine: LLMEngine) -> LLMEngine:
    """With the toolchain that its key was made with, which another default of a newer operator does not change."""
    spec, status = engine.spec, engine.status
    if spec is None or spec.toolchain is not None or status.key is None or status.toolchain is None:
        return engine
    return replace(engine, spec=spec.model_copy(update={"toolchain": Toolchain(status.toolchain)}))


def known_model(snapshot: EngineSnapshot) -> ModelStatus | None:
    """Facts that hold for this spec: learned for the same source, or by a neighbour for the same pinned digest.

    An engine that has a key keeps what it was made from: its spec cannot change, and another image, hub or token that
    a newer operator or a person puts in place is no reason to build it again.
    """
    engine = snapshot.engine
    assert engine.spec is not None
    if engine.status.key is not None and engine.status.model is not None:
        return engine.status.model
    source = source_hash(engine.spec, snapshot.defaults)
    for known in (engine.status.model, snapshot.known_model):
        if known is not None and known.source == source and engine.spec.model_digest in (None, known.facts.digest):
            return known
    return learned_model(source, snapshot.fetch)


def learned_model(source: str, fetch: Run | None) -> ModelStatus | None:
    """What a finished fetch Job reports; None while it has not, or when its pod is gone."""
    if fetch is None or (learned := runs.learned(fetch)) is None:
        return None
    facts, versions = learned
    return ModelStatus(source=source, facts=facts, versions=versions)


def _learn_model(snapshot: EngineSnapshot) -> EnginePlan:
    engine = snapshot.engine
    assert engine.spec is not None
    verdict, actions = learn(
        snapshot.fetch,
        fetch_job.fetch_job(engine, snapshot.defaults),
        None if engine.spec.model_volume else cache_claim.cache_claim(engine.meta.namespace, snapshot.defaults),
        engine.spec.model,
    )
    return EnginePlan(verdict=verdict, actions=actions, build=snapshot.fetch)


def learn(
    fetch: Run | None, job: dict[str, object], cache: dict[str, object] | None, model: str
) -> tuple[Verdict, tuple[Action, ...]]:
    """Start, watch or judge the Job that fetches or inspects a model."""
    doing = f"inspecting {model}" if cache is None else f"fetching {model}"
    if fetch is None:
        claim = (Create(manifest=cache, reason="cache of hub models"),) if cache is not None else ()
        return _moving(Reason.FETCHING_MODEL, doing), (*claim, Create(manifest=job, reason=doing))
    if fetch.job.meta.deleting:
        return _moving(Reason.FETCHING_MODEL, f"waiting for the previous Job {fetch.job.meta.name} to go"), ()
    if (failed := runs.failure(fetch, "fetch")) is not None:
        meta = fetch.job.meta
        remedy = f"; when the cause is mended: kubectl delete job -n {meta.namespace} {meta.name}"
        return Verdict(course=Course.STALLED, reason=failed.reason, message=failed.message + remedy), ()
    if fetch.job.complete and not any(pod.phase == "Succeeded" for pod in fetch.pods):
        # The pod is gone, and what it learned with it (nobody was there to read it): ask again.
        again = Delete(
            api_version="batch/v1",
            kind="Job",
            namespace=fetch.job.meta.namespace,
            name=fetch.job.meta.name,
            uid=fetch.job.meta.uid,
            owner_uid=fetch.job.meta.controller_uid or "",
            reason="its result is lost",
        )
        return _moving(Reason.FETCHING_MODEL, doing), (again,)
    if (waits := runs.waiting(fetch.pods)) is not None:
        return waits, ()
    line = runs.last_progress(fetch)
    detail = f": {line.percent:.0f}%" + (f", {line.detail}" if line.detail else "") if line else ""
    return _moving(Reason.FETCHING_MODEL, doing + detail), ()


def _elder(snapshot: EngineSnapshot, key: str) -> LLMEngine | None:
    """The oldest engine with this key, if that is not this one: it builds, the others refer to it."""
    same = [
        other for other in snapshot.siblings if other.status.key == key and other.meta.uid != snapshot.engine.meta.uid
    ]
    oldest = min([*same, snapshot.engine], key=lambda e: (e.meta.created is None, e.meta.created, e.meta.uid))
    return None if oldest is snapshot.engine else oldest


def _follow(elder: LLMEngine, model: ModelStatus, resolution: Resolution) -> EnginePlan:
    """Ready, building or failed exactly as the elder is."""
    status, name = elder.status, elder.meta.name
    if status.phase is EnginePhase.READY:
        verdict = Verdict(
            course=Course.SETTLED,
            reason=Reason.AS_EXPECTED,
            message=f"uses the files of engine {name}, which has the same key",
        )
    elif status.phase is EnginePhase.FAILED:
        verdict = Verdict(
            course=Course.STALLED,
            reason=_failed_reason(status),
            message=f"engine {name}, which has the same key, failed: {status.message or ''}",
        )
    else:
        verdict = _moving(Reason.BUILDING_ENGINE, f"engine {name}, which has the same key, is building")
    return EnginePlan(verdict=verdict, model=model, resolution=resolution, elder=elder)


def _build(snapshot: EngineSnapshot, model: ModelStatus, resolution: Resolution, now: datetime) -> EnginePlan:
    engine, key = snapshot.engine, resolution.engine_key
    assert engine.spec is not None
    claim = Create(
        manifest=engine_claim.engine_claim(engine, resolution, snapshot.defaults), reason="volume of the engine"
    )
    claims = () if names.engine_claim(key) in snapshot.claims else (claim,)
    run = snapshot.builds.get(names.build_job(key))
    before = engine.status if engine.status.key == key else LLMEngineStatus()
    # The Job tells it too, when the status was lost or another engine asked for the rebuild.
    rebuilds = max(before.rebuilds or 0, rebuild_of(run))

    def plan(verdict: Verdict, *actions: Action, shown: Run | None = run) -> EnginePlan:
        return EnginePlan(
            verdict=verdict, actions=actions, model=model, resolution=resolution, build=shown, rebuilds=rebuilds
        )

    # A Job is about the content, not about who asked first: a living sibling's serves as well as our own.
    askers = {engine.meta.uid, *(other.meta.uid for other in snapshot.siblings)}
    if run is not None and (run.job.meta.deleting or run.job.meta.controller_uid not in askers):
        return plan(
            _moving(Reason.BUILDING_ENGINE, f"waiting for the previous Job {run.job.meta.name} to go"),
            *claims,
            shown=None,
        )
    if before.phase is EnginePhase.FAILED and (run is None or _failed_reason(before) is Reason.ENGINE_CORRUPT):
        # What it said stands until a person starts it again: the Job of a failed build may be gone, and that of a
        # corrupt engine had succeeded.
        return plan(Verdict(course=Course.STALLED, reason=_failed_reason(before), message=before.message or ""))
    if run is not None and rebuild_of(run) < rebuilds:
        past = _delete("batch/v1", "Job", run.job.meta, "its files were corrupt, and are built anew")
        return plan(_moving(Reason.BUILDING_ENGINE, "building corrupt files anew"), past, shown=None)
    if run.job.complete if run is not None else before.phase is EnginePhase.READY:
        found = corruption(snapshot.servers, run.job.finished if run is not None else before.build_finished)
        if found is None:
            return _keep(snapshot, plan(_ready(engine, key)), now)
        # Written down before anything is done about it: what is forgotten in between would be done twice.
        return replace(plan(_corrupt(engine, key, found, rebuilds)), rebuilds=1)
    if run is None:
        me = Waiter(
            namespace=engine.meta.namespace,
            uid=engine.meta.uid,
            job=names.build_job(key),
            since=before.queued_since or now,
        )
        if (place := standing(snapshot.slots, me)) is not None:
            return replace(plan(_moving(Reason.WAITING_FOR_BUILD_SLOT, place), *claims), queued_since=me.since)
        job = Create(
            manifest=build_job.build_job(engine, resolution, snapshot.defaults, rebuilds),
            reason=f"building engine {names.short(key)}",
        )
        ranks = resolution.mapping.world_size
        doing = f"starting the build of {ranks} rank(s)" if not rebuilds else "building corrupt files anew"
        return plan(_moving(Reason.BUILDING_ENGINE, doing), *claims, job)
    if (failed := runs.failure(run, "build")) is not None:
        return plan(
            Verdict(course=Course.STALLED, reason=failed.reason, message=f"{failed.message}; {_again(engine)}"), *claims
        )
    if (waits := runs.waiting(run.pods)) is not None:
        held = snapshot.claims.get(names.engine_claim(key))
        if waits.reason == Reason.WAITING_FOR_VOLUME and held is not None and held.phase == "Pending":
            waits = replace(waits, message=_unbound(held))
        return plan(waits, *claims)
    return plan(_moving(Reason.BUILDING_ENGINE, _building_message(run, resolution)), *claims)


def _corrupt(engine: LLMEngine, key: str, found: str, rebuilds: int) -> Verdict:
    if not rebuilds:
        return _moving(Reason.ENGINE_CORRUPT, f"{found}; corrupt files are built anew, once; what serves goes on")
    claim = names.engine_claim(key)
    remedy = f"look at the storage of claim {claim}, or delete that too for a new volume; {_again(engine)}"
    return Verdict(
        course=Course.STALLED,
        reason=Reason.ENGINE_CORRUPT,
        message=f"{found}; the files had been built anew already; {remedy}",
    )


def _unbound(claim: ClaimView) -> str:
    """Which storage class is missing, or gives no volume: the scheduler does not say."""
    name, asks = claim.meta.name, claim.storage_class
    what = f"storage class {asks}" if asks else "no storage class, so it waits for a default one"
    return (
        f"claim {name} is not bound; it asks for {what} ({', '.join(claim.access_modes)}); "
        f"see: kubectl get storageclass, kubectl describe pvc -n {claim.meta.namespace} {name}; "
        f"make such a class, or name another in engine.storage.storageClassName and delete the claim"
    )


def _again(engine: LLMEngine) -> str:
    return f"when the cause is mended: kubectl delete llmengine -n {engine.meta.namespace} {engine.meta.name}"


def _keep(snapshot: EngineSnapshot, plan: EnginePlan, now: datetime) -> EnginePlan:
    """Retention: an engine that we made and nobody needs goes when its time is over, and its files with it."""
    engine = snapshot.engine
    assert engine.spec is not None and plan.resolution is not None
    keep = engine.spec.retention_seconds(snapshot.defaults.retention_seconds)
    ours = engine.meta.labels.get(names.MANAGED_BY) == names.MANAGER
    if snapshot.referenced_by or not ours or keep is None:
        return plan
    since = engine.status.unreferenced_since or now
    end = since + timedelta(seconds=keep)
    if now < end:
        return replace(plan, unreferenced_since=since, look_again=end)
    claim = snapshot.claims.get(names.engine_claim(plan.resolution.engine_key))
    elsewhere = any(other.status.key == plan.resolution.engine_key for other in snapshot.siblings)
    files = () if claim is None or elsewhere else (_delete("v1", "PersistentVolumeClaim", claim.meta, _OVER),)
    itself = _delete(names.API_VERSION, "LLMEngine", engine.meta, _OVER)
    return replace(plan, actions=(*files, itself), unreferenced_since=since)


_OVER: Final = "retention is over"


def _delete(api_version: str, kind: str, meta: Meta, reason: str) -> Delete:
    return Delete(
        api_version=api_version,
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        owner_uid=meta.controller_uid or "",
        reason=reason,
    )


def _ready(engine: LLMEngine, key: str) -> Verdict:
    return Verdict(
        course=Course.SETTLED, reason=Reason.AS_EXPECTED, message=f"engine {names.short(key)} is built and verified"
    )


def _building_message(run: Run, resolution: Resolution) -> str:
    ranks = resolution.mapping.world_size
    line = runs.last_progress(run)
    text = f"{runs.overall_percent(run, ranks)}%"
    if line is not None:
        text += f", step {line.step}" + (f" ({line.detail})" if line.detail else "")
        text += f" on rank {line.rank}" if ranks > 1 else ""
    since = run.job.started
    return text + (f"; since {since:%H:%MZ}" if since else "")


def _failed_reason(status: LLMEngineStatus) -> Reason:
    ready = next((c for c in status.conditions if c.type == "Ready"), None)
    return Reason(ready.reason) if ready is not None else Reason.BUILD_FAILED


def _moving(reason: Reason, message: str) -> Verdict:
    return Verdict(course=Course.MOVING, reason=reason, message=message)


def stalled(refused: Refused) -> Verdict:
    """A spec that cannot be done: a person must change it."""
    return Verdict(course=Course.STALLED, reason=refused.reason, message=refused.sentence())
