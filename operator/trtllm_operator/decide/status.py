"""What people and machines are told: pure functions from a snapshot and its plan to the whole status.

The same facts give the same status, byte for byte, so nothing is written at rest; texts carry the time
when something began, never an age that would have to be rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from ..api import names
from ..api.conditions import Condition, ConditionType, Reason, drop_condition, set_condition
from ..api.deployment import (
    AdjustmentStatus,
    DeploymentDisplay,
    EngineReference,
    LLMDeploymentStatus,
    MappingStatus,
    Phase,
    ProblemStatus,
)
from ..api.engine import EngineDisplay, EnginePhase, LLMEngineStatus
from ..desired.service import leader_selector
from ..resolve.resolution import Resolution
from . import runs
from .deployment import DeploymentPlan, given_up, port, serving_revision, wanted_groups
from .engine import EnginePlan
from .plan import Course, Verdict
from .snapshot import DeploymentSnapshot, EngineSnapshot

MESSAGE_LIMIT: Final = 2000
"""Characters of a condition's message."""


def kstatus(existing: Sequence[Condition], verdict: Verdict, generation: int, now: datetime) -> tuple[Condition, ...]:
    """Ready, Reconciling and Stalled as kstatus reads them: Ready is True iff neither of the others is.

    The latter two are present only while true.
    """
    conditions = tuple(existing)
    reason, message = verdict.reason, verdict.message[:MESSAGE_LIMIT]
    settled = verdict.course is Course.SETTLED
    conditions = set_condition(conditions, ConditionType.READY, settled, reason, message, generation, now)
    for kind, course in ((ConditionType.RECONCILING, Course.MOVING), (ConditionType.STALLED, Course.STALLED)):
        if verdict.course is course:
            conditions = set_condition(conditions, kind, True, reason, message, generation, now)
        else:
            conditions = drop_condition(conditions, kind)
    return conditions


# --- LLMEngine --------------------------------------------------------------------------------------------------------


def engine_status(snapshot: EngineSnapshot, plan: EnginePlan, now: datetime) -> dict[str, Any]:
    """The whole status of an engine, as JSON."""
    engine, before = snapshot.engine, snapshot.engine.status
    resolution, generation = plan.resolution, engine.meta.generation
    conditions = kstatus(before.conditions, plan.verdict, generation, now)
    conditions = _spec_valid(conditions, not plan.problems, plan.verdict, generation, now)
    same_key = resolution is not None and before.key == resolution.engine_key
    phase = _engine_phase(plan)
    ranks = resolution.mapping.world_size if resolution else None
    running = phase is EnginePhase.BUILDING and plan.build is not None and ranks is not None
    line = runs.last_progress(plan.build) if plan.build is not None and phase in _WORKING else None
    percent = runs.overall_percent(plan.build, ranks) if running and plan.build and ranks else None
    results = runs.results(plan.build) if plan.build is not None and phase is EnginePhase.READY else {}
    elder = plan.elder.status if plan.elder is not None else None
    job = plan.build.job if plan.build is not None and resolution is not None else None
    known_bytes = elder.bytes if elder else before.bytes if same_key else None
    size = sum(r.bytes or 0 for r in results.values()) if results else known_bytes
    return LLMEngineStatus(
        observed_generation=generation,
        conditions=conditions,
        phase=phase,
        key=resolution.engine_key if resolution else None,
        toolchain=resolution.toolchain if resolution else None,
        toolchain_version=resolution.toolchain_version if resolution else None,
        model=plan.model,
        reference=plan.elder.meta.name if plan.elder else None,
        problems=tuple(map(ProblemStatus.of, plan.problems)),
        adjustments=tuple(map(AdjustmentStatus.of, resolution.adjustments)) if resolution else (),
        percent=percent,
        eta_seconds=line.eta_seconds if line else None,
        step=line.step if line else None,
        message=plan.verdict.message[:MESSAGE_LIMIT],
        bytes=size,
        ranks=ranks,
        seconds=_slowest(r.seconds or {} for r in results.values()) or (before.seconds if same_key else {}),
        build_started=job.started if job else before.build_started if same_key else None,
        build_finished=job.finished if job else before.build_finished if same_key else None,
        queued_since=plan.queued_since,
        rebuilds=plan.rebuilds or None,
        unreferenced_since=plan.unreferenced_since,
        display=EngineDisplay(
            key=names.short(resolution.engine_key) if resolution else None,
            progress=_engine_progress(phase, percent, line.eta_seconds if line else None, size),
        ),
    ).to_json()


_WORKING: Final = (EnginePhase.FETCHING, EnginePhase.BUILDING)


def _engine_phase(plan: EnginePlan) -> EnginePhase:
    match plan.verdict.course:
        case Course.SETTLED:
            return EnginePhase.READY
        case Course.STALLED:
            return EnginePhase.FAILED
    if plan.verdict.reason == Reason.ENGINE_CORRUPT:
        return EnginePhase.CORRUPT
    return EnginePhase.FETCHING if plan.resolution is None else EnginePhase.BUILDING


def _engine_progress(phase: EnginePhase, percent: int | None, eta: int | None, size: int | None) -> str | None:
    if phase is EnginePhase.READY and size:
        return _bytes(size)
    return building(percent, eta) if percent is not None else None


def building(percent: int, eta_seconds: int | None) -> str:
    """`41%, 7m left`; without an estimate `41%`."""
    return f"{percent}%" if not eta_seconds else f"{percent}%, {_duration(eta_seconds)} left"


def _slowest(all_seconds: Any) -> dict[str, float]:
    """Per step, the seconds of the rank that took longest."""
    slowest: dict[str, float] = {}
    for seconds in all_seconds:
        for step, value in seconds.items():
            slowest[step] = max(value, slowest.get(step, 0.0))
    return slowest


def _bytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def _duration(seconds: int) -> str:
    return f"{seconds}s" if seconds < 90 else f"{(seconds + 30) // 60}m" if seconds < 5400 else f"{seconds / 3600:.1f}h"


# --- LLMDeployment ----------------------------------------------------------------------------------------------------


def deployment_status(snapshot: DeploymentSnapshot, plan: DeploymentPlan, now: datetime) -> dict[str, Any]:
    """The whole status of a deployment, as JSON."""
    deployment, before = snapshot.deployment, snapshot.deployment.status
    serving = serving_revision(snapshot)
    # Nothing is proven by a rollout of no replicas.
    proven = plan.verdict.course is Course.SETTLED and (plan.wanted > 0 or serving is None)
    current = plan.target if proven and plan.target else serving
    resolution = plan.resolution or (snapshot.revisions[serving].resolution if serving else None)
    groups = [group for group in snapshot.groups if not group.meta.deleting]
    ready = sum(group.is_ready for group in groups)
    updated = sum(group.revision == plan.target for group in groups)
    wanted = wanted_groups(snapshot) if deployment.spec is not None else plan.wanted
    engine = _engine_reference(plan, resolution)
    return LLMDeploymentStatus(
        observed_generation=deployment.meta.generation,
        conditions=_deployment_conditions(snapshot, plan, ready, wanted, now),
        phase=_deployment_phase(plan, ready),
        mapping=_mapping(resolution) if resolution else None,
        model=plan.model,
        engine=engine,
        problems=tuple(map(ProblemStatus.of, plan.problems)),
        adjustments=tuple(map(AdjustmentStatus.of, plan.resolution.adjustments)) if plan.resolution else (),
        replicas=len(groups),
        ready_replicas=ready,
        updated_replicas=updated,
        selector=leader_selector(deployment),
        current_revision=current,
        target_revision=plan.target or before.target_revision,
        failed_revision=plan.failed or given_up(snapshot),
        url=_url(snapshot) if snapshot.revisions else None,
        display=DeploymentDisplay(
            ready=f"{ready}/{wanted}",
            engine=_engine_text(engine) if engine else None,
            parallel=_parallel(resolution) if resolution else None,
        ),
    ).to_json()


def _deployment_conditions(
    snapshot: DeploymentSnapshot, plan: DeploymentPlan, ready: int, wanted: int, now: datetime
) -> tuple[Condition, ...]:
    generation, verdict = snapshot.deployment.meta.generation, plan.verdict
    conditions = kstatus(snapshot.deployment.status.conditions, verdict, generation, now)
    conditions = _spec_valid(conditions, not plan.problems, verdict, generation, now)
    built = None if plan.engine is None else plan.engine.status.phase is EnginePhase.READY
    if built:
        reason, message = Reason.AS_EXPECTED.value, f"engine {plan.engine.meta.name if plan.engine else ''} is ready"
    else:
        reason, message = verdict.reason, verdict.message[:MESSAGE_LIMIT]
    conditions = set_condition(conditions, ConditionType.ENGINE_READY, built, reason, message, generation, now)
    available = ready > 0
    if available:
        reason, message = Reason.AS_EXPECTED.value, f"{ready} of {wanted} replicas serve"
    else:
        reason, message = verdict.reason, verdict.message[:MESSAGE_LIMIT]
    return set_condition(conditions, ConditionType.AVAILABLE, available, reason, message, generation, now)


def _deployment_phase(plan: DeploymentPlan, ready: int) -> Phase:
    verdict = plan.verdict
    if verdict.reason == Reason.SUSPENDED:
        return Phase.SUSPENDED
    match verdict.course:
        case Course.SETTLED:
            return Phase.READY
        case Course.STALLED:
            return Phase.DEGRADED if ready else Phase.FAILED
    if plan.moves_groups:
        return Phase.ROLLING_OUT
    if plan.resolution is not None:
        return Phase.BUILDING
    return Phase.FETCHING if verdict.reason == Reason.FETCHING_MODEL else Phase.PENDING


def _engine_reference(plan: DeploymentPlan, resolution: Resolution | None) -> EngineReference | None:
    if resolution is None:
        return None
    engine = plan.engine
    if engine is None:
        return EngineReference(key=resolution.engine_key)
    status = engine.status
    return EngineReference(
        name=engine.meta.name,
        key=resolution.engine_key,
        state=status.phase,
        percent=status.percent,
        eta_seconds=status.eta_seconds,
        message=None if status.phase is EnginePhase.READY else status.message,
    )


def _engine_text(engine: EngineReference) -> str:
    if engine.state == EnginePhase.FAILED:
        return "failed"
    if engine.percent is not None:
        return building(engine.percent, engine.eta_seconds)
    return names.short(engine.key) if engine.key else "-"


def _parallel(resolution: Resolution) -> str:
    """`tp2·pp2`; what is 1 is left out, a single rank is `tp1`."""
    mapping = resolution.mapping
    parts = [f"{name}{size}" for name, size in (("tp", mapping.tp), ("cp", mapping.cp), ("pp", mapping.pp)) if size > 1]
    return "·".join(parts) or "tp1"


def _mapping(resolution: Resolution) -> MappingStatus:
    mapping = resolution.mapping
    return MappingStatus(
        tensor_parallel_size=mapping.tp,
        pipeline_parallel_size=mapping.pp,
        context_parallel_size=mapping.cp,
        world_size=mapping.world_size,
        pods=resolution.pods,
        gpus_per_pod=resolution.gpus_per_pod,
        gpus=resolution.pods * resolution.gpus_per_pod,
    )


def _url(snapshot: DeploymentSnapshot) -> str:
    deployment = snapshot.deployment
    return f"http://{names.service(deployment.meta.name)}.{deployment.meta.namespace}.svc:{port(snapshot)}/v1"


def _spec_valid(
    conditions: tuple[Condition, ...], valid: bool, verdict: Verdict, generation: int, now: datetime
) -> tuple[Condition, ...]:
    reason, message = Reason.ACCEPTED.value, "the spec is valid"
    if not valid:
        reason, message = verdict.reason, verdict.message[:MESSAGE_LIMIT]
    return set_condition(conditions, ConditionType.SPEC_VALID, valid, reason, message, generation, now)
