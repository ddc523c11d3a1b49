"""Decide for one LLMEngine: an ordered list of checks, the first that has something to say is the plan.

    model known -> key -> an elder with the same key? -> claim -> build Job -> ready

The key names the claim and the build Job, so whoever asks for the same content meets the same objects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..api import names
from ..api.conditions import Reason
from ..api.engine import EnginePhase, LLMEngine, LLMEngineStatus
from ..api.model_facts import ModelStatus
from ..api.problems import Problem, Refused
from ..desired import build_job, cache_claim, engine_claim, fetch_job
from ..resolve.resolution import Resolution, resolve
from ..resolve.source import source_hash
from ..resolve.validate import check_engine
from . import runs
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
    engine = snapshot.engine
    problems = engine.problems if engine.spec is None else tuple(check_engine(engine.spec, snapshot.defaults))
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


def known_model(snapshot: EngineSnapshot) -> ModelStatus | None:
    """Facts that hold for this spec: learned for the same source, or by a neighbour for the same pinned digest."""
    engine = snapshot.engine
    assert engine.spec is not None
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
            reason=Reason.BUILD_FAILED,
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

    def plan(verdict: Verdict, *actions: Action, shown: Run | None = run) -> EnginePlan:
        return EnginePlan(verdict=verdict, actions=actions, model=model, resolution=resolution, build=shown)

    # A Job is about the content, not about who asked first: a living sibling's serves as well as our own.
    askers = {engine.meta.uid, *(other.meta.uid for other in snapshot.siblings)}
    if run is not None and (run.job.meta.deleting or run.job.meta.controller_uid not in askers):
        return plan(
            _moving(Reason.BUILDING_ENGINE, f"waiting for the previous Job {run.job.meta.name} to go"),
            *claims,
            shown=None,
        )
    if run is None or run.job.complete:
        built = run is not None or (engine.status.phase is EnginePhase.READY and engine.status.key == key)
        if built:
            return _keep(snapshot, plan(_ready(engine, key)), now)
    if run is None:
        if engine.status.phase is EnginePhase.FAILED and engine.status.key == key:
            # The Job of a failed build is gone; what it said stands until a person starts it again.
            return plan(
                Verdict(
                    course=Course.STALLED, reason=_failed_reason(engine.status), message=engine.status.message or ""
                )
            )
        job = Create(
            manifest=build_job.build_job(engine, resolution, snapshot.defaults),
            reason=f"building engine {names.short(key)}",
        )
        return plan(
            _moving(Reason.BUILDING_ENGINE, f"starting the build of {resolution.mapping.world_size} rank(s)"),
            *claims,
            job,
        )
    if (failed := runs.failure(run, "build")) is not None:
        remedy = f"; when the cause is mended: kubectl delete llmengine -n {engine.meta.namespace} {engine.meta.name}"
        return plan(Verdict(course=Course.STALLED, reason=failed.reason, message=failed.message + remedy), *claims)
    if (waits := runs.waiting(run.pods)) is not None:
        return plan(waits, *claims)
    return plan(_moving(Reason.BUILDING_ENGINE, _building_message(run, resolution)), *claims)


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
    shown = EnginePlan(
        verdict=plan.verdict,
        model=plan.model,
        resolution=plan.resolution,
        build=plan.build,
        unreferenced_since=since,
        look_again=end,
    )
    if now < end:
        return shown
    claim = snapshot.claims.get(names.engine_claim(plan.resolution.engine_key))
    elsewhere = any(other.status.key == plan.resolution.engine_key for other in snapshot.siblings)
    files = (
        ()
        if claim is None or elsewhere
        else (_delete("v1", "PersistentVolumeClaim", claim.meta.namespace, claim.meta.name, claim.meta.uid, ""),)
    )
    itself = _delete(names.API_VERSION, "LLMEngine", engine.meta.namespace, engine.meta.name, engine.meta.uid, "")
    return EnginePlan(
        verdict=plan.verdict,
        actions=(*files, itself),
        model=plan.model,
        resolution=plan.resolution,
        unreferenced_since=since,
    )


def _delete(api_version: str, kind: str, namespace: str, name: str, uid: str, owner_uid: str) -> Delete:
    return Delete(
        api_version=api_version,
        kind=kind,
        namespace=namespace,
        name=name,
        uid=uid,
        owner_uid=owner_uid,
        reason="retention is over",
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
