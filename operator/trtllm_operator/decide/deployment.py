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

from ..api import names
from ..api.conditions import Reason
from ..api.deployment import FailedRevision
from ..api.engine import EnginePhase, LLMEngine
from ..api.model_facts import ModelStatus
from ..api.problems import Problem, Refused
from ..api.views import GroupView, PodView, timestamp
from ..desired import cache_claim, controller_revision, fetch_job, llm_engine, pdb, service, statefulset
from ..resolve.resolution import Resolution, resolve
from ..resolve.review import review_object
from ..resolve.revision import Frozen, revision_of
from ..resolve.source import source_hash
from . import rollout, runs
from .engine import learn, learned_model, stalled
from .health import health, pods_of
from .leftovers import lost_pods, next_loss, old_records
from .plan import Action, Apply, Course, Create, Delete, Plan, Verdict
from .snapshot import DeploymentSnapshot, Run
from .takeover import Takeover, observed_groups, take_over


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
    failed: FailedRevision | None = None
    """The target revision, if it was given up."""
    asks_gpus: bool = False
    """The plan is better with `snapshot.gpus`: have them counted, and decide again."""
    moves_groups: bool = False
    """Whether the advance itself makes and removes groups, so that upkeep must not."""


def decide_deployment(snapshot: DeploymentSnapshot, now: datetime) -> DeploymentPlan:
    """Choose the next actions for one deployment; pure, so every row of the table tests is a whole decision."""
    plan = _advance(snapshot, now)
    return replace(
        plan,
        actions=(*_upkeep(snapshot, plan, now), *plan.actions),
        look_again=_earliest(plan.look_again, next_loss(_all_pods(snapshot), snapshot.nodes, now)),
    )


def _all_pods(snapshot: DeploymentSnapshot) -> tuple[PodView, ...]:
    return (*snapshot.pods, *(snapshot.fetch.pods if snapshot.fetch is not None else ()))


def wanted_groups(snapshot: DeploymentSnapshot) -> int:
    spec = snapshot.deployment.spec
    return 0 if spec is None or spec.suspend else spec.replicas


def serving_revision(snapshot: DeploymentSnapshot) -> str | None:
    """The revision that last was rolled out whole; before that, none."""
    current = snapshot.deployment.status.current_revision
    return current if current in snapshot.revisions else None


def given_up(snapshot: DeploymentSnapshot) -> FailedRevision | None:
    """The revision that the spec asks for, if it failed and nobody asked to try it again since."""
    deployment = snapshot.deployment
    failed, asked = deployment.status.failed_revision, deployment.meta.annotations.get(names.RETRY_ANNOTATION)
    if failed is None or deployment.spec is None or failed.revision != revision_of(deployment):
        return None
    try:
        again = timestamp(asked)
    except ValueError:
        return failed
    return failed if again is None or again.tzinfo is None or again < failed.at else None


# --- upkeep -----------------------------------------------------------------------------------------------------------


def _upkeep(snapshot: DeploymentSnapshot, plan: DeploymentPlan, now: datetime) -> Iterable[Action]:
    """What keeps serving as it serves: also while the new spec is invalid or an engine builds for 40 minutes."""
    deployment = snapshot.deployment
    if snapshot.revisions:
        yield Apply(manifest=service.headless(deployment), reason="addresses of all ranks")
        yield Apply(manifest=service.leader(deployment, port(snapshot)), reason="address for clients")
        yield Apply(manifest=pdb.disruption_budget(deployment), reason="drains take one replica at a time")
    going = {action.name for action in plan.actions if isinstance(action, Delete)}
    for group in snapshot.groups:
        frozen = snapshot.revisions.get(group.revision)
        if frozen is not None and not group.meta.deleting and group.meta.name not in going:
            yield Apply(
                manifest=statefulset.statefulset(deployment, frozen, group.ordinal), reason="group as its revision says"
            )
    serving = serving_revision(snapshot)
    if serving is not None and not plan.moves_groups:
        yield from _scale(snapshot, plan, serving, now)
    yield from lost_pods(_all_pods(snapshot), snapshot.nodes, now)
    status, failed = deployment.status, plan.failed.revision if plan.failed is not None else None
    groups = (group.revision for group in snapshot.groups)
    yield from old_records(snapshot, {*groups, serving, plan.target, status.target_revision, failed})


def _scale(snapshot: DeploymentSnapshot, plan: DeploymentPlan, serving: str, now: datetime) -> Iterable[Action]:
    groups = observed_groups(snapshot, serving, now)
    if plan.verdict.reason == Reason.PAUSED:
        # What the rollout had begun stays as it is.
        begun = {group.ordinal for group in snapshot.groups if group.revision == plan.target}
        groups = [replace(group, current=group.current or group.ordinal in begun) for group in groups]
    return _moves(snapshot, rollout.hold(groups, plan.wanted), serving, "number of replicas")


# --- advance ----------------------------------------------------------------------------------------------------------


def _advance(snapshot: DeploymentSnapshot, now: datetime) -> DeploymentPlan:
    deployment, wanted = snapshot.deployment, wanted_groups(snapshot)
    spec = deployment.spec
    problems = review_object(deployment, snapshot.defaults).problems
    if spec is None or problems:
        refused = Refused(problems)
        wanted = len([g for g in snapshot.groups if not g.meta.deleting]) if spec is None else wanted
        return DeploymentPlan(
            verdict=stalled(refused), problems=refused.problems, wanted=wanted, model=deployment.status.model
        )
    if spec.suspend:
        return _suspend(snapshot)
    target = revision_of(deployment)
    frozen = snapshot.revisions.get(target)
    failed = given_up(snapshot)
    if spec.strategy.paused and failed is None and not _is_served(snapshot, target):
        return _pause(snapshot, target, wanted)
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
    if failed is not None:
        return _fall_back(snapshot, base, serving_revision(snapshot), failed, now)
    engine = find_engine(snapshot.engines, frozen.resolution.engine_key)
    if engine is None:
        manifest = llm_engine.llm_engine(deployment, frozen.resolution, snapshot.defaults)
        create = Create(manifest=manifest, reason=f"no engine has the key {names.short(frozen.resolution.engine_key)}")
        return replace(base, verdict=_moving(Reason.BUILDING_ENGINE, "asking for the engine"), actions=(create,))
    base = replace(base, engine=engine)
    if engine.status.phase is not EnginePhase.READY:
        return replace(base, verdict=_engine_verdict(engine, snapshot))
    return _roll_out(snapshot, base, target, now)


def _is_served(snapshot: DeploymentSnapshot, target: str) -> bool:
    """Whether there is nothing to roll out: what serves is the target, and nothing else is left."""
    old = any(group.revision != target and not group.meta.deleting for group in snapshot.groups)
    return serving_revision(snapshot) == target and not old


def _pause(snapshot: DeploymentSnapshot, target: str, wanted: int) -> DeploymentPlan:
    """What runs is maintained; a new revision is neither resolved, built nor rolled out."""
    frozen = snapshot.revisions.get(target)
    serving = serving_revision(snapshot)
    return DeploymentPlan(
        verdict=_moving(
            Reason.PAUSED,
            f"paused before revision {target} is rolled out; "
            f"{f'revision {serving} keeps serving' if serving else 'nothing serves'}; set strategy.paused to false",
        ),
        target=target if frozen is not None else None,
        frozen=frozen,
        resolution=frozen.resolution if frozen is not None else None,
        model=snapshot.deployment.status.model,
        wanted=wanted,
    )


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
        resolution = resolve(spec, model.facts, model.versions, snapshot.defaults, snapshot.gpu_nodes)
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


def _roll_out(snapshot: DeploymentSnapshot, base: DeploymentPlan, target: str, now: datetime) -> DeploymentPlan:
    took = take_over(snapshot, target, base.wanted, now)
    actions = tuple(_moves(snapshot, took.step, target, f"rollout of revision {target}"))
    plan = replace(base, actions=actions, moves_groups=True, asks_gpus=took.asks_gpus, look_again=took.look_again)
    if rollout.is_complete(took.groups, base.wanted):
        return replace(plan, verdict=_settled(base.wanted))
    spec = snapshot.deployment.valid_spec
    built = base.engine.status if base.engine is not None else None
    rebuilt = built.build_finished if built is not None and built.rebuilds else None
    found = health((g for g in snapshot.groups if g.revision == target), snapshot.pods, spec, now, rebuilt)
    if found.failure is None:
        verdict = _progress(snapshot, took, target, base.wanted)
        return replace(plan, verdict=verdict, look_again=_earliest(found.deadline, took.look_again))
    good = serving_revision(snapshot)
    if good is None or good == target:
        # Nothing to go back to: the pods stay as they are, for whoever looks into it.
        failure = found.failure
        return replace(plan, verdict=Verdict(course=Course.STALLED, reason=failure.reason, message=failure.message))
    failed = FailedRevision(
        revision=target, reason=found.failure.reason, message=found.failure.message, at=now.replace(microsecond=0)
    )
    # Written down before anything is done about it: what is forgotten in between would be tried again.
    return replace(_fall_back(snapshot, base, good, failed, now), actions=(), asks_gpus=False)


def _fall_back(
    snapshot: DeploymentSnapshot, base: DeploymentPlan, good: str | None, failed: FailedRevision, now: datetime
) -> DeploymentPlan:
    """Serve what served before; the failed revision is not tried again until the spec changes."""
    message = f"revision {failed.revision} failed: {failed.message}"
    base = replace(base, failed=failed)
    if good is None:
        verdict = Verdict(course=Course.STALLED, reason=Reason(failed.reason), message=message)
        return replace(base, verdict=verdict)
    took = take_over(snapshot, good, base.wanted, now)
    ready = sum(g.current and g.ready and not g.deleting for g in took.groups)
    message += f"; revision {good} serves ({ready} of {base.wanted} replicas are ready); change the spec to try again"
    return replace(
        base,
        verdict=Verdict(course=Course.STALLED, reason=Reason.ROLLED_BACK, message=message),
        actions=tuple(_moves(snapshot, took.step, good, f"back to revision {good}")),
        moves_groups=True,
        asks_gpus=took.asks_gpus,
        look_again=took.look_again,
    )


def _settled(wanted: int) -> Verdict:
    if not wanted:
        return Verdict(
            course=Course.SETTLED, reason=Reason.SCALED_TO_ZERO, message="no replicas are asked for; engines are kept"
        )
    return Verdict(course=Course.SETTLED, reason=Reason.AS_EXPECTED, message=f"{wanted} of {wanted} replicas are ready")


def _progress(snapshot: DeploymentSnapshot, took: Takeover, target: str, wanted: int) -> Verdict:
    """The most telling thing about a rollout that goes on."""
    ours = {group.meta.uid for group in snapshot.groups if group.revision == target and not group.is_ready}
    pods = [pod for pod in snapshot.pods if pod.meta.controller_uid in ours]
    updated = sum(group.current and group.ready and not group.deleting for group in took.groups)
    parts = [f"{updated} of {wanted} replicas are ready"]
    waits = runs.waiting(pods)
    parts += [_without_pods(g) for g in snapshot.groups if g.meta.uid in ours and not pods_of(g, snapshot.pods)]
    if waits is not None:
        parts.append(waits.message)
    if took.note:
        parts.append(took.note)
    if took.shortage and (took.note or (waits is not None and waits.reason == Reason.WAITING_FOR_GPUS)):
        parts.append(took.shortage)
    return _moving(Reason(waits.reason) if waits is not None else Reason.ROLLING_OUT, "; ".join(parts))


def _without_pods(group: GroupView) -> str:
    """For moments that is how it begins; when it lasts, a quota or a policy stands against the pods."""
    where = f"kubectl describe statefulset -n {group.meta.namespace} {group.meta.name}"
    return f"{group.meta.name} has no pods yet; if that lasts, see: {where}"


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)


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
    asked = None if snapshot.deployment.spec is None else revision_of(snapshot.deployment)
    preferred = (serving_revision(snapshot), asked, *sorted(snapshot.revisions))
    ports = (snapshot.revisions[revision].port for revision in preferred if revision and revision in snapshot.revisions)
    first = next(ports, None)
    if first is None:
        raise LookupError(f"{snapshot.deployment.meta.name} has no revision, so nothing has a port")
    return first


def _moving(reason: Reason, message: str) -> Verdict:
    return Verdict(course=Course.MOVING, reason=reason, message=message)
