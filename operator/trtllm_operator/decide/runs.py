"""What a fetch or build Job came to, read from its pods before the Job controller has spoken."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from trtllm_engine.contract import ContractError, ExitCode, ModelFacts, Progress, Result, Step

from ..api.conditions import Reason
from ..api.quantity import amount
from ..api.views import PodView
from .plan import Course, Verdict
from .snapshot import Run

GIB: Final = 2**30
KILLED: Final = 137
"""Exit code of SIGKILL: the kernel's out-of-memory killer, or the kubelet's."""
DEADLINES: Final = {"build": "engine.deadlineSeconds", "fetch": "defaults.fetchDeadlineSeconds of the operator's chart"}
"""Who sets how long a Job may take."""

FINAL_CODES: Final = frozenset(code for code in ExitCode if 2 <= code <= 7) | {KILLED}
"""Exit codes that the Job's podFailurePolicy ends the Job on; trying again cannot help."""

_IMAGE_TROUBLE: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a Job cannot succeed any more."""

    reason: Reason
    message: str


def result(pod: PodView) -> Result | None:
    """The pod's own account of its end; None if it could not write one (killed, evicted)."""
    try:
        return Result.from_json(pod.exit_message) if pod.exit_message else None
    except ContractError:
        return None


def results(run: Run) -> dict[int, Result]:
    """Of the ranks that succeeded, by rank."""
    return {pod.index: said for pod in _newest(run) if (said := result(pod)) is not None and said.ok}


def failure(run: Run, what: str) -> Failure | None:
    """The first failure that no retry can mend, within moments of the pod's end; else the Job's own verdict."""
    for pod in sorted(run.pods, key=lambda p: (p.finished is None, p.finished or _born(p), p.index)):
        if pod.exit_code in FINAL_CODES and pod.phase != "Running":
            return _of_pod(pod, run, what)
    if not run.job.failed:
        return None
    if run.job.reason == "DeadlineExceeded":
        reason = Reason.BUILD_DEADLINE_EXCEEDED if what == "build" else Reason.FETCH_FAILED
        return Failure(
            reason=reason,
            message=f"the {what} did not finish within its deadline{_where(last_progress(run))}; "
            f"set {DEADLINES[what]} to more, or look at: {logs_hint(run)}",
        )
    for pod in run.pods:
        if pod.exit_code not in (None, 0):
            return _of_pod(pod, run, what)
    return Failure(
        reason=_general(what),
        message=f"the {what} Job failed: {run.job.message or run.job.reason}; see: {logs_hint(run)}",
    )


def waiting(pods: Iterable[PodView]) -> Verdict | None:
    """What the pods of something that has not failed wait for, if they wait."""
    for pod in pods:
        if pod.phase != "Pending":
            continue
        if pod.waiting_reason in _IMAGE_TROUBLE:
            return Verdict(
                course=Course.MOVING,
                reason=Reason.IMAGE_PULL_FAILING,
                message=f"pod {pod.meta.name}: {pod.waiting_reason}: {pod.waiting_message or 'no detail'}; "
                "check the image's name, the registry and podTemplate.imagePullSecrets",
            )
        if pod.waiting_reason == "CreateContainerConfigError":
            return Verdict(
                course=Course.MOVING,
                reason=Reason.WAITING_FOR_SECRET,
                message=f"pod {pod.meta.name}: {pod.waiting_message or pod.waiting_reason}; "
                "create it, or mend hubTokenSecretRef",
            )
        if pod.gated:
            return Verdict(
                course=Course.MOVING,
                reason=Reason.WAITING_FOR_QUOTA,
                message=f"pod {pod.meta.name} is held back by the scheduling gate {', '.join(pod.gated)}; "
                "whoever set it must lift it: for Kueue, look at the namespace's LocalQueue",
            )
        if pod.unschedulable:
            return Verdict(course=Course.MOVING, reason=unschedulable_reason(pod), message=unschedulable_message(pod))
    return None


def unschedulable_reason(pod: PodView) -> Reason:
    """A pod that no node takes, in the scheduler's words: for want of a volume, of GPUs, or of anything else."""
    words = pod.unschedulable.lower()
    if "persistentvolumeclaim" in words or "volume" in words:
        return Reason.WAITING_FOR_VOLUME
    return Reason.WAITING_FOR_GPUS if "gpu" in words else Reason.WAITING_FOR_NODE


def unschedulable_message(pod: PodView) -> str:
    """The scheduler's words, and which field of ours to look at."""
    remedy = {
        Reason.WAITING_FOR_VOLUME: "make the claim, or name another in modelVolume.persistentVolumeClaim.claimName",
        Reason.WAITING_FOR_GPUS: "free GPUs, add nodes, or look at gpu.resourceName and scheduling",
    }.get(unschedulable_reason(pod), "look at scheduling.nodeSelector, scheduling.tolerations and the pod's requests")
    return f"pod {pod.meta.name} fits on no node: {pod.unschedulable.rstrip('. ')}; {remedy}"


def last_progress(run: Run) -> Progress | None:
    """The line of the rank that is least far."""
    return min(run.progress.values(), key=lambda p: p.percent, default=None)


def overall_percent(run: Run, ranks: int) -> int:
    """Whole percent over all ranks: done ones count 100, silent ones 0. Never 100 before the Job is complete."""
    done = results(run)
    partial = (line.percent for rank, line in run.progress.items() if rank not in done)
    return min(99, int((100.0 * len(done) + sum(partial)) / max(ranks, 1)))


def learned(run: Run) -> tuple[ModelFacts, dict[str, str]] | None:
    """Facts and toolchain versions that a finished fetch reports; None while unfinished or when its pod is gone."""
    for said in results(run).values():
        if said.facts is not None and said.versions is not None:
            return said.facts, said.versions
    return None


def logs_hint(run: Run) -> str:
    return f"kubectl logs -n {run.job.meta.namespace} job/{run.job.meta.name}"


def _of_pod(pod: PodView, run: Run, what: str) -> Failure:
    said = result(pod)
    if pod.exit_reason == "OOMKilled" or (pod.exit_code == KILLED and said is None):
        return Failure(
            reason=Reason.BUILD_OUT_OF_MEMORY if what == "build" else Reason.FETCH_FAILED,
            message=f"{what}: rank {pod.index} needed more host memory than its limit"
            f"{_where(run.progress.get(pod.index))}; {_more_memory(what, run)}",
        )
    if said is None:
        return Failure(
            reason=_general(what),
            message=f"{what}: pod {pod.meta.name} ended with code {pod.exit_code}: "
            f"{pod.exit_message or pod.exit_reason or 'no message'}; see: {logs_hint(run)}",
        )
    parts = [f"{what} failed"]
    if said.step is not None and said.step != what:
        parts[0] += f" at step {said.step}"
    if run.job.completions > 1:
        parts[0] += f" on rank {pod.index}"
    if said.field:
        parts.append(said.field)
    parts.append(said.message or "no message")
    text = ": ".join(parts)
    if said.log and said.log not in text:
        text += f"; first failing log line: {said.log}"
    return Failure(reason=_reason(said, what), message=f"{text}; see: {logs_hint(run)}")


def _more_memory(what: str, run: Run) -> str:
    if what != "build":
        namespace = run.job.meta.namespace
        return f"we set it none, so its limit is the namespace's: kubectl get limitrange -n {namespace}"
    had = amount(run.job.memory)
    if not had:
        return "set engine.resources.limits.memory to more"
    return f"it had {run.job.memory}; set engine.resources.limits.memory to {_next_size(had)} or more"


def _next_size(had: Decimal) -> str:
    """Half as much again, in whole Gi."""
    return f"{max(1, math.ceil(had * 3 / 2 / GIB))}Gi"


def _reason(said: Result, what: str) -> Reason:
    match said.code:
        case ExitCode.BAD_REQUEST:
            return Reason.INVALID_SPEC
        case ExitCode.UNSUPPORTED:
            return Reason.UNSUPPORTED_BY_TOOLCHAIN
        case ExitCode.MODEL_UNAVAILABLE:
            return Reason.MODEL_FORBIDDEN if said.field == "hubTokenSecretRef" else Reason.MODEL_NOT_FOUND
        case ExitCode.NO_SPACE:
            return Reason.NO_SPACE
        case _:
            return _general(what)


def _general(what: str) -> Reason:
    return Reason.BUILD_FAILED if what == "build" else Reason.FETCH_FAILED


def _where(progress: Progress | None) -> str:
    return "" if progress is None else f" (step {Step(progress.step)}, {progress.percent:.0f}%)"


def _newest(run: Run) -> list[PodView]:
    """One pod per index, the youngest: an index that was tried again has several."""
    newest: dict[int, PodView] = {}
    for pod in sorted(run.pods, key=_born):
        newest[pod.index] = pod
    return list(newest.values())


def _born(pod: PodView) -> datetime:
    return pod.meta.created or datetime.min.replace(tzinfo=UTC)
