"""Are the two objects ready? And what `kubectl get` shows meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.demo.kubectl import Json, Kubectl
from tests.demo.steps import Failure, Progress
from tests.render import NAMESPACE as OPERATOR_NAMESPACE

PERIOD: Final = 1.0
"""Seconds between two looks."""


@dataclass(slots=True)
class Board:
    """What the person at the terminal watches: the tables that kubectl prints."""

    text: str = ""


def wait_ready(
    kubectl: Kubectl, namespace: str, names: Mapping[str, str], board: Board, progress: Progress, seconds: float
) -> None:
    """Wait until every object (name by kind) is Ready for its generation.

    Raises `Failure` at once when one is Stalled, which means that a person must act, or after `seconds`.
    """
    kinds = ",".join(names)
    waited = 0.0
    while True:
        board.text = "\n".join(kubectl.text("get", kind, "-n", namespace, check=False) for kind in names)
        objects: list[Json] = kubectl.json("get", kinds, "-n", namespace)["items"]
        mine = [obj for obj in objects if obj["metadata"]["name"] == names.get(obj["kind"].lower())]
        for obj in mine:
            if is_current(obj) and (why := condition(obj, "Stalled")) is not None:
                raise Failure(f"{describe(obj)} needs attention: {why}", tail=context(kubectl, namespace))
        if len(mine) == len(names) and all(is_ready(obj) for obj in mine):
            return
        progress.detail = "; ".join(summary(obj) for obj in mine if not is_ready(obj))
        if waited >= seconds:
            raise Failure(f"not ready after {seconds:.0f} s: {progress.detail}", tail=context(kubectl, namespace))
        progress.pause(PERIOD)
        waited += PERIOD


def is_current(obj: Json) -> bool:
    """Whether its status speaks of what was asked for last."""
    return bool((obj.get("status") or {}).get("observedGeneration") == obj["metadata"]["generation"])


def is_ready(obj: Json) -> bool:
    """Ready, and said of this generation."""
    return is_current(obj) and condition(obj, "Ready") is not None


def condition(obj: Json, kind: str) -> str | None:
    """The message of a condition that is true, else None."""
    for entry in (obj.get("status") or {}).get("conditions") or ():
        if entry["type"] == kind and entry["status"] == "True":
            return str(entry.get("message") or entry.get("reason") or kind)
    return None


def summary(obj: Json) -> str:
    """One object in a few words."""
    status: Json = obj.get("status") or {}
    for entry in status.get("conditions") or ():
        if entry["type"] == "Ready":
            return f"{describe(obj)}: {entry.get('message') or entry.get('reason')}"
    return f"{describe(obj)}: not yet seen by the operator"


def describe(obj: Json) -> str:
    """`LLMDeployment smollm2`."""
    return f"{obj['kind']} {obj['metadata']['name']}"


def context(kubectl: Kubectl, namespace: str) -> str:
    """What helps to understand a failure: the pods, the last events, the operator's last words."""
    pods = kubectl.text("get", "pods", "-n", namespace, check=False)
    events = kubectl.text("get", "events", "-n", namespace, "--sort-by=.metadata.creationTimestamp", check=False)
    log = kubectl.text("logs", "-n", OPERATOR_NAMESPACE, "deployment/trtllm-operator", "--tail=15", check=False)
    return "\n".join([pods, *events.splitlines()[-10:], "", log])
