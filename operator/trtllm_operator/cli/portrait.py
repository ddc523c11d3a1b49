"""A picture as a tree: the deployment, why it is not ready, its engine, its replicas and their pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from ..api.conditions import Condition, ConditionType, find_condition
from ..api.deployment import LLMDeployment, Phase
from ..api.engine import EnginePhase, LLMEngine
from ..api.names import short
from ..api.views import GroupView, PodView
from .amounts import age, bar, count, duration, size
from .output import Style
from .picture import Picture
from .standing import Standing, State, of_server, of_worker
from .tree import Branch, Line, Span, aligned, joined

GOOD_MARK, BUSY_MARK, BAD_MARK = "✓", "◐", "✗"
PHASE_STYLES = {Phase.READY: Style.GOOD, Phase.FAILED: Style.BAD, Phase.DEGRADED: Style.BAD}


def portrait(picture: Picture, now: datetime) -> Branch:
    """The whole tree."""
    deployment = picture.deployment
    status, meta = deployment.status, deployment.meta
    phase = status.phase or Phase.PENDING
    target = status.target_revision or status.current_revision
    return Branch(
        line=joined(
            Span(meta.name, Style.STRONG),
            Span("Deleting" if meta.deleting else phase, PHASE_STYLES.get(phase, Style.DOUBTFUL)),
            _extent(deployment),
        ),
        right=f"generation {meta.generation}" + (f" → revision {target}" if target else ""),
        below=tuple(_below(picture, now)),
    )


def headline(deployment: LLMDeployment) -> str:
    """What is worth a line when it changes; no ages in it."""
    status, ready = deployment.status, blocking(deployment)
    shown = status.display
    parts = (
        status.phase or Phase.PENDING,
        shown.ready if shown else None,
        f"engine {shown.engine}" if shown and shown.engine else None,
        f"{ready.reason}: {ready.message}" if ready else None,
    )
    return f"{deployment.meta.name}  " + "  ".join(part for part in parts if part)


def blocking(deployment: LLMDeployment) -> Condition | None:
    """Why it is not ready; None if it is, or the operator has not said anything."""
    conditions = deployment.status.conditions
    stalled = find_condition(conditions, ConditionType.STALLED)
    ready = find_condition(conditions, ConditionType.READY)
    return stalled or (ready if ready is not None and ready.status != "True" else None)


def _extent(deployment: LLMDeployment) -> str:
    shown, mapping, spec = deployment.status.display, deployment.status.mapping, deployment.spec
    replicas = count(spec.replicas, "replica") if spec else ""
    each = f"{count(mapping.gpus, 'GPU')} × {replicas}" if mapping and mapping.gpus else replicas
    return " · ".join(part for part in (shown.parallel if shown else None, each) if part)


def _below(picture: Picture, now: datetime) -> Iterator[Branch]:
    deployment = picture.deployment
    status = deployment.status
    if (branch := _reason(deployment, now)) is not None:
        yield branch
    if status.observed_generation is not None and status.observed_generation < deployment.meta.generation:
        yield Branch(line=joined(Span(f"{BUSY_MARK} the operator has not looked at this generation yet", Style.FAINT)))
    if status.phase is None:
        text = "no status yet: the operator has not seen it; if that lasts, see llmd doctor"
        yield Branch(line=joined(Span(f"{BUSY_MARK} {text}", Style.DOUBTFUL)))
    for pod in picture.fetching():
        yield Branch(line=joined("model", *_work(picture, pod, "fetching"), *_place(pod, now)))
    if status.engine is not None:
        yield _engine(picture, now)
    yield from _revisions(picture, now)
    if status.adjustments:
        chosen = [Branch(line=joined(f"{a.field} {a.to}", Span(a.reason, Style.FAINT))) for a in status.adjustments]
        yield Branch(line=joined("chosen for you"), below=tuple(chosen))
    if status.url:
        yield Branch(line=joined(f"url {status.url}"))


def _reason(deployment: LLMDeployment, now: datetime) -> Branch | None:
    condition = blocking(deployment)
    if condition is None:
        return None
    stalled = condition.type == ConditionType.STALLED
    mark, style = (BAD_MARK, Style.BAD) if stalled else (BUSY_MARK, Style.DOUBTFUL)
    began = condition.last_transition_time
    since = f"since {began:%H:%MZ}" if now - began < timedelta(hours=12) else f"since {began:%Y-%m-%d %H:%MZ}"
    words = Span(f"{mark} {condition.reason}", style)
    problems = deployment.status.problems
    told = [Branch(line=joined(f"{p.path}: {p.message}", Span(p.hint or "", Style.FAINT))) for p in problems]
    return Branch(line=joined(words, Span(since, Style.FAINT), condition.message), below=tuple(told))


def _engine(picture: Picture, now: datetime) -> Branch:
    reference = picture.deployment.status.engine
    assert reference is not None
    engine, key = picture.engine, f"key {short(reference.key)}" if reference.key else ""
    head = f"engine {reference.name}" if reference.name else "engine"
    if reference.state == EnginePhase.READY:
        return Branch(line=joined(head, _good("ready"), _built(engine, key)))
    if reference.state in (EnginePhase.FAILED, EnginePhase.CORRUPT):
        return Branch(line=joined(head, _bad("failed" if reference.state == EnginePhase.FAILED else "corrupt"), key))
    pods = picture.building()
    left = f"{duration(reference.eta_seconds)} left" if reference.eta_seconds else ""
    progress = bar(reference.percent) if reference.percent is not None else ""
    step = engine.status.step if engine and engine.status.step else ""
    ranks = aligned([(Span(f"rank {p.index}"), *_work(picture, p, "working"), *_place(p, now)) for p in pods])
    below = tuple(Branch(line=line) for line in ranks)
    return Branch(line=joined(head, _busy(f"building {progress}".rstrip()), left, step, key), below=below)


def _built(engine: LLMEngine | None, key: str) -> str:
    parts = []
    if engine is not None:
        status = engine.status
        parts = [count(status.ranks, "rank") if status.ranks else "", size(status.bytes) if status.bytes else ""]
        if status.build_started and status.build_finished:
            parts.append(f"built in {duration((status.build_finished - status.build_started).total_seconds())}")
        elif status.reference:
            parts.append(f"files of {status.reference}")
    return " · ".join(part for part in (*parts, key) if part)


def _revisions(picture: Picture, now: datetime) -> Iterator[Branch]:
    status = picture.deployment.status
    present = {group.revision for group in picture.groups}
    target = status.target_revision
    order = [name for name in (target, status.current_revision) if name and (name in present or name == target)]
    for revision in dict.fromkeys([*order, *sorted(present)]):
        groups = [group for group in picture.groups if group.revision == revision]
        yield Branch(
            line=joined(f"revision {revision}", *_standing(picture.deployment, revision, groups)),
            below=tuple(_groups(picture, groups, now)),
        )


def _standing(deployment: LLMDeployment, revision: str, groups: list[GroupView]) -> Iterator[Span]:
    status, spec = deployment.status, deployment.spec
    ready, wanted = sum(group.is_ready for group in groups), spec.replicas if spec and not spec.suspend else 0
    failed = status.failed_revision
    if failed is not None and failed.revision == revision:
        yield _bad("failed")
        yield Span("the spec asks for it; llmd retry tries it once more", Style.FAINT)
    elif revision == status.target_revision:
        yield Span(f"{ready}/{wanted} ready")
    else:
        yield Span(f"{ready} ready")
    if revision == status.current_revision:
        yield Span("serves")
    elif revision != status.target_revision:
        yield Span("goes", Style.FAINT)


def _groups(picture: Picture, groups: Sequence[GroupView], now: datetime) -> Iterator[Branch]:
    """Those of one pod each are one line each, one under the other."""
    alone = {group.meta.name: pods[0] for group in groups if len(pods := picture.pods_of(group)) == group.replicas == 1}
    lines = dict(zip(alone, aligned([_row(picture, pod, name, now) for name, pod in alone.items()]), strict=True))
    for group in groups:
        line = lines.get(group.meta.name)
        yield _group(picture, group, now) if line is None else Branch(line=line)


def _row(picture: Picture, pod: PodView, name: str, now: datetime) -> Line:
    return (Span(name), *_state(picture, pod), *_place(pod, now))


def _group(picture: Picture, group: GroupView, now: datetime) -> Branch:
    pods = picture.pods_of(group)
    mark = _going(group.meta.deleting) or (
        _good(f"{group.ready}/{group.replicas} pods")
        if group.is_ready
        else _busy(f"{group.ready}/{group.replicas} pods")
    )
    below = [Branch(line=line) for line in aligned([_row(picture, pod, pod.meta.name, now) for pod in pods])]
    note = "" if pods else "no pods yet: if that lasts, llmd events says why"
    return Branch(
        line=joined(group.meta.name, mark, note, Span(age(group.meta.created, now), Style.FAINT)), below=tuple(below)
    )


def _state(picture: Picture, pod: PodView) -> Line:
    """Of a serving pod."""
    standing = of_server(picture, pod)
    restarts = count(pod.restarts, "restart") if pod.restarts and standing.state is not State.GOING else ""
    return (_marked(standing), Span(restarts, Style.DOUBTFUL))


def _work(picture: Picture, pod: PodView, word: str) -> Line:
    """Of a pod that fetches or builds."""
    standing = of_worker(picture, pod, word)
    return (_marked(standing), Span(standing.detail))


def _marked(standing: Standing) -> Span:
    """One mark, and the words that say most."""
    match standing.state:
        case State.READY | State.DONE:
            return _good(standing.text)
        case State.FAILED:
            return _bad(standing.text)
        case State.GOING:
            return Span(f"{BUSY_MARK} {standing.text}", Style.FAINT)
        case _:
            return _busy(standing.text + (f" {bar(standing.percent)}" if standing.percent is not None else ""))


def _place(pod: PodView, now: datetime) -> Line:
    node = f"node {pod.node}" if pod.node else ""
    return (Span(node), Span(age(pod.meta.created, now), Style.FAINT))


def _going(deleting: bool) -> Span | None:
    return Span(f"{BUSY_MARK} going", Style.FAINT) if deleting else None


def _good(text: str) -> Span:
    return Span(f"{GOOD_MARK} {text}", Style.GOOD)


def _busy(text: str) -> Span:
    return Span(f"{BUSY_MARK} {text}", Style.DOUBTFUL)


def _bad(text: str) -> Span:
    return Span(f"{BAD_MARK} {text}", Style.BAD)
