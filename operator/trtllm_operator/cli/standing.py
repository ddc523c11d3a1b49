"""What a pod is doing, and what it says about it: one judgement, for the eye and for machines."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..api.views import PodView
from ..decide.runs import result
from .picture import OVER, Picture


class State(enum.StrEnum):
    """Of a pod."""

    READY = "ready"
    """It serves."""
    DONE = "done"
    """It has fetched or built what it should."""
    LOADING = "loading"
    """It reads the engine."""
    WORKING = "working"
    """It fetches or builds."""
    STARTING = "starting"
    """It runs, and has not said anything yet."""
    WAITING = "waiting"
    """It does not run yet."""
    FAILED = "failed"
    """It ended badly, and may be started again."""
    GOING = "going"
    """It is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One judgement."""

    state: State
    text: str
    """In a few words, without the bar."""
    percent: float | None = None
    detail: str = ""
    """What exactly it is working on."""


def of_server(picture: Picture, pod: PodView) -> Standing:
    """Of a serving pod."""
    line = picture.progress.get(pod.meta.name)
    if pod.meta.deleting:
        return Standing(state=State.GOING, text="going")
    if pod.ready:
        return Standing(state=State.READY, text="ready")
    if trouble := _trouble(pod):
        return Standing(state=State.FAILED, text=trouble)
    if pod.running_since is None:
        return Standing(state=State.WAITING, text=_waiting(pod))
    if line is None:
        return Standing(state=State.STARTING, text="starting")
    return Standing(state=State.LOADING, text="loading engine", percent=line.percent)


def of_worker(picture: Picture, pod: PodView, word: str) -> Standing:
    """Of a pod that fetches or builds; `word` says which, until it does."""
    line = picture.progress.get(pod.meta.name)
    if pod.phase == "Succeeded":
        return Standing(state=State.DONE, text="done")
    if trouble := _trouble(pod):
        return Standing(state=State.FAILED, text=trouble)
    if line is not None:
        return Standing(state=State.WORKING, text=line.step, percent=line.percent, detail=line.detail or "")
    if pod.running_since is not None:
        return Standing(state=State.STARTING, text=word)
    return Standing(state=State.WAITING, text=_waiting(pod))


def _trouble(pod: PodView) -> str:
    """What ended badly, in its own words; empty if nothing did."""
    if pod.exit_code in (None, 0) or pod.running_since is not None:
        return ""
    said = result(pod)
    words = (said.message if said else None) or pod.exit_reason or "no message"
    waits = f"{pod.waiting_reason}, " if pod.waiting_reason and pod.phase not in OVER else ""
    return f"{waits}ended with code {pod.exit_code}: {words}"


def _waiting(pod: PodView) -> str:
    if pod.gated:
        return f"held back by the scheduling gate {', '.join(pod.gated)}"
    if pod.unschedulable:
        return f"no node: {pod.unschedulable.rstrip('. ')}"
    return ": ".join(part for part in (pod.waiting_reason or "pending", pod.waiting_message) if part)
