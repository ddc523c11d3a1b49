"""Decide for one LLMDeployment: keep what serves, and advance by one step toward what the spec asks for.

Upkeep comes first and always: Services, the groups that serve, their number. To advance is a list of
checks, and the first that has something to say ends it:

    spec is valid -> model is known -> it resolves -> it is frozen -> engine is ready -> groups are rolled out

Nothing that serves is touched before the last of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ..api import names
from ..api.conditions import Reason
from ..api.engine import EnginePhase, LLMEngine
from ..api.model_facts import ModelStatus
from ..api.problems import Problem, Refused
from ..api.views import GroupView, PodView
from ..desired import cache_claim, controller_revision, fetch_job, llm_engine, service, statefulset
from ..resolve.resolution import Resolution, resolve
from ..resolve.revision import Frozen, revision_hash
from ..resolve.source import source_hash
from ..resolve.validate import check_deployment
from . import rollout, runs
from .engine import learn, learned_model, stalled
from .plan import Action, Apply, Course, Create, Delete, Plan, Verdict
from .snapshot import DeploymentSnapshot, Run

RESTART_BUDGET: Final = 3
"""Restarts of one pod after which its group counts as crashing and a person must look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan(Plan):
    """A plan, and the facts that status shows beside the verdict."""

    problems: tuple[Problem, ...] = ()
    """Why the spec is refused; empty: it is not."""
    model: ModelStatus | None = None
    target: str | None = None
    """Hash of the revision that the spec asks for, once it is frozen."""
    frozen: Frozen | None = None
    resolution: Resolution | None = None
    engine: LLMEngine | None = None
    fetch: Run | None = None
    wanted: int = 0
    """Groups that the spec asks for."""
    moves_groups: bool = False
    """Whether the advance itself makes and removes groups, so that upkeep must not."""


def decide_deployment(snapshot: DeploymentSnapshot, now: datetime) -> DeploymentPlan:
    """Choose the next actions for one deployment; pure, so every row of the table tests is a whole decision."""
    plan = _advance(snapshot)
    return replace(plan, actions=(*_upkeep(snapshot, plan), *plan.actions))


def wanted_groups(snapshot: DeploymentSnapshot) -> int:
    spec = snapshot.deployment.spec
    return 0 if spec is None or spec.suspend else spec.replicas


def serving_revision(snapshot: DeploymentSnapshot) -> str | None:
    """The revision that last was rolled out whole; before that, none."""
    current = snapshot.deployment.status.current_revision
    return current if current in snapshot.revisions else None


# --- upkeep -----------------------------------------------------------------------------------------------------------


def _upkeep(snapshot: DeploymentSnapshot, plan: DeploymentPlan) -> Iterable[Action]:
    """What keeps serving as it serves: also while the new spec is invalid or an engine builds for 40 minutes."""
    deployment = snapshot.deployment
    if snapshot.revisions:
        yield Apply(manifest=service.headless(deployment), reason="addresses of all ranks")
        yield Apply(manifest=service.leader(deployment, port(snapshot)), reason="address for clients")
    going = {action.name for action in plan.actions if isinstance(action, Delete)}
    for group in snapshot.groups:
        frozen = snapshot.revisions.get(group.revision)
        if frozen is not None and not group.meta.deleting and group.meta.name not in going:
            yield Apply(
                manifest=statefulset.statefulset(deployment, frozen, group.ordinal), reason="group as its revision says"
            )
    serving = serving_revision(snapshot)
    if serving is not None and not plan.moves_groups:
        yield from _scale(snapshot, serving, plan.wanted)


def _scale(snapshot: DeploymentSnapshot, serving: str, wanted: int) -> Iterable[Action]:
    groups = [group for group in snapshot.groups if group.revision == serving]
    step = rollout.next_step(observed_groups(groups, snapshot.pods, serving), wanted)
    return _moves(snapshot, step, serving, "number of replicas")


# --- advance ----------------------------------------------------------------------------------------------------------


def _advance(snapshot: DeploymentSnapshot) -> DeploymentPlan:
    deployment, wanted = snapshot.deployment, wanted_groups(snapshot)
    spec = deployment.spec
    problems = deployment.problems if spec is None else tuple(check_deployment(spec, snapshot.defaults))
    if spec is None or problems:
        refused = Refused(problems)
        wanted = len([g for g in snapshot.groups if not g.meta.deleting]) if spec is None else wanted
        return DeploymentPlan(
            verdict=stalled(refused), problems=refused.problems, wanted=wanted, model=deployment.status.model
        )
    if spec.suspend:
        return _suspend(snapshot)
    target = revision_hash(spec)
    frozen = snapshot.revisions.get(target)
    if frozen is None:
        return _freeze(snapshot, target, wanted)
    model = deployment.status.model or ModelStatus(
        source=source_hash(spec, snapshot.defaults), facts=frozen.resolution.facts, versions={}
    )
    base = DeploymentPlan(
        verdict=_moving(Reason.ROLLING_OUT, ""),
        target=target,
        frozen=frozen,
        resolution=frozen.resolution,
        wanted=wanted,
        model=model,
    )
    engine = find_engine(snapshot.engines, frozen.resolution.engine_key)
    if engine is None:
        manifest = llm_engine.llm_engine(deployment, frozen.resolution, snapshot.defaults)
        create = Create(manifest=manifest, reason=f"no engine has the key {names.short(frozen.resolution.engine_key)}")
        return replace(base, verdict=_moving(Reason.BUILDING_ENGINE, "asking for the engine"), actions=(create,))
    base = replace(base, engine=engine)
    if engine.status.phase is not EnginePhase.READY:
        return replace(base, verdict=_engine_verdict(engine, snapshot))
    return _roll_out(snapshot, base, target)


def _suspend(snapshot: DeploymentSnapshot) -> DeploymentPlan:
    step = rollout.Step(delete=tuple(group.ordinal for group in snapshot.groups if not group.meta.deleting))
    verdict = Verdict(course=Course.SETTLED, reason=Reason.SUSPENDED, message="suspended by the spec; engines are kept")
    if snapshot.groups:
        verdict = _moving(Reason.SUSPENDED, f"{len(snapshot.groups)} replica(s) are being removed")
    return DeploymentPlan(
        verdict=verdict,
        actions=tuple(_moves(snapshot, step, "", "suspended")),
        model=snapshot.deployment.status.model,
        moves_groups=True,
    )


def _freeze(snapshot: DeploymentSnapshot, target: str, wanted: int) -> DeploymentPlan:
    """Learn the model, resolve, and write down what was resolved, before anything is made from it."""
    deployment = snapshot.deployment
    spec = deployment.spec
    assert spec is not None
    source = source_hash(spec, snapshot.defaults)
    model = deployment.status.model if deployment.status.model and deployment.status.model.source == source else None
    model = model or learned_model(source, snapshot.fetch)
    if model is None:
        verdict, actions = learn(
            snapshot.fetch,
            fetch_job.fetch_job(deployment, snapshot.defaults),
            None if spec.model_volume else cache_claim.cache_claim(deployment.meta.namespace, snapshot.defaults),
            spec.model,
        )
        return DeploymentPlan(verdict=verdict, actions=actions, fetch=snapshot.fetch, wanted=wanted)
    try:
        resolution = resolve(spec, model.facts, model.versions, snapshot.defaults)
    except Refused as refused:
        return DeploymentPlan(verdict=stalled(refused), problems=refused.problems, model=model, wanted=wanted)
    frozen = controller_revision.freeze(deployment, resolution, snapshot.defaults)
    create = Create(manifest=controller_revision.controller_revision(deployment, frozen), reason=f"revision {target}")
    return DeploymentPlan(
        verdict=_moving(Reason.BUILDING_ENGINE, f"revision {target} is resolved"),
        actions=(create,),
        model=model,
        resolution=resolution,
        wanted=wanted,
    )


def find_engine(engines: Iterable[LLMEngine], key: str) -> LLMEngine | None:
    """By key, never by name: a ready one first, else the oldest; one of ours also before it has a status."""
    same = [
        e
        for e in engines
        if not e.meta.deleting and (e.status.key == key or e.meta.labels.get(names.KEY_LABEL) == key[:16])
    ]
    return min(
        same,
        key=lambda e: (e.status.phase is not EnginePhase.READY, e.meta.created is None, e.meta.created, e.meta.uid),
        default=None,
    )


def _engine_verdict(engine: LLMEngine, snapshot: DeploymentSnapshot) -> Verdict:
    said = next((c for c in engine.status.conditions if c.type == "Ready"), None)
    reason = Reason(said.reason) if said is not None and said.reason else Reason.BUILDING_ENGINE
    message = f"engine {engine.meta.name}: {engine.status.message or 'not seen by the operator yet'}"
    if engine.status.phase is not EnginePhase.FAILED:
        return _moving(reason, message)
    if any(group.is_ready for group in snapshot.groups):
        message += f"; revision {serving_revision(snapshot) or 'before'} keeps serving"
    return Verdict(course=Course.STALLED, reason=reason, message=message)


def _roll_out(snapshot: DeploymentSnapshot, base: DeploymentPlan, target: str) -> DeploymentPlan:
    observed = observed_groups(snapshot.groups, snapshot.pods, target)
    step = rollout.next_step(observed, base.wanted)
    actions = tuple(_moves(snapshot, step, target, f"rollout of revision {target}"))
    plan = replace(base, actions=actions, moves_groups=True)
    if rollout.is_complete(observed, base.wanted):
        return replace(plan, verdict=_settled(base.wanted))
    return replace(plan, verdict=_progress(snapshot, observed, step, target, base.wanted))


def _settled(wanted: int) -> Verdict:
    if not wanted:
        return Verdict(
            course=Course.SETTLED, reason=Reason.SCALED_TO_ZERO, message="no replicas are asked for; engines are kept"
        )
    return Verdict(course=Course.SETTLED, reason=Reason.AS_EXPECTED, message=f"{wanted} of {wanted} replicas are ready")


def _progress(
    snapshot: DeploymentSnapshot, observed: list[rollout.Group], step: rollout.Step, target: str, wanted: int
) -> Verdict:
    """The most telling thing about a rollout that is not complete."""
    ours = {group.meta.name for group in snapshot.groups if group.revision == target and not group.is_ready}
    pods = [pod for pod in snapshot.pods if pod.meta.name.rsplit("-", 1)[0] in ours]
    updated = sum(group.current and group.ready and not group.deleting for group in observed)
    count = f"{updated} of {wanted} replicas are ready"
    for pod in pods:
        said = runs.result(pod)
        hopeless = said is not None and said.code in runs.FINAL_CODES
        if (pod.restarts >= RESTART_BUDGET or hopeless) and not pod.ready:
            cause = (said.message if said else None) or pod.exit_message or pod.exit_reason or pod.waiting_message
            return Verdict(
                course=Course.STALLED,
                reason=Reason.REPLICA_CRASHING,
                message=f"pod {pod.meta.name} ended with code {pod.exit_code} ({pod.restarts} restarts): {cause}; "
                f"see: kubectl logs -n {pod.meta.namespace} {pod.meta.name} --previous",
            )
    if (waits := runs.waiting(pods)) is not None:
        suffix = "; replacing one by one, because there is no room for a surge" if step.one_by_one else ""
        return replace(waits, message=f"{count}; {waits.message}{suffix}")
    return _moving(Reason.ROLLING_OUT, count)


def observed_groups(groups: Iterable[GroupView], pods: Iterable[PodView], revision: str) -> list[rollout.Group]:
    stuck = {
        pod.meta.name.rsplit("-", 1)[0]
        for pod in pods
        if pod.unschedulable and runs.unschedulable_reason(pod) is Reason.WAITING_FOR_GPUS
    }
    return [
        rollout.Group(
            ordinal=group.ordinal,
            current=group.revision == revision,
            ready=group.is_ready,
            deleting=group.meta.deleting,
            no_room=group.meta.name in stuck,
        )
        for group in groups
    ]


def _moves(snapshot: DeploymentSnapshot, step: rollout.Step, revision: str, reason: str) -> Iterable[Action]:
    deployment = snapshot.deployment
    by_ordinal = {group.ordinal: group for group in snapshot.groups}
    for ordinal in step.delete:
        group = by_ordinal[ordinal]
        yield Delete(
            api_version="apps/v1",
            kind="StatefulSet",
            namespace=group.meta.namespace,
            name=group.meta.name,
            uid=group.meta.uid,
            owner_uid=deployment.meta.uid,
            reason=reason,
        )
    for ordinal in step.create:
        yield Apply(manifest=statefulset.statefulset(deployment, snapshot.revisions[revision], ordinal), reason=reason)


def port(snapshot: DeploymentSnapshot) -> int:
    """What clients use: that of what serves, until its successor does; a spec that is not served moves nothing.

    Raises `LookupError` before there is a revision.
    """
    spec = snapshot.deployment.spec
    preferred = (serving_revision(snapshot), None if spec is None else revision_hash(spec), *sorted(snapshot.revisions))
    ports = (snapshot.revisions[revision].port for revision in preferred if revision and revision in snapshot.revisions)
    first = next(ports, None)
    if first is None:
        raise LookupError(f"{snapshot.deployment.meta.name} has no revision, so nothing has a port")
    return first


def _moving(reason: Reason, message: str) -> Verdict:
    return Verdict(course=Course.MOVING, reason=reason, message=message)
