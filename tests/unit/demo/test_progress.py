"""The demo goes on when both objects are ready for what was asked, and stops when a person must act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from tests.demo.kubectl import Json, Kubectl
from tests.demo.progress import Board, is_ready, wait_ready
from tests.demo.steps import Failure, Progress

NAMES = {"llmdeployment": "smollm2", "llmengine": "smollm2-rtx-ada"}


def thing(kind: str, *, observed: int = 2, **conditions: str) -> Json:
    """An object of generation 2 whose given conditions are true, each with its message."""
    return {
        "kind": kind,
        "metadata": {"name": NAMES[kind.lower()], "generation": 2},
        "status": {
            "observedGeneration": observed,
            "conditions": [{"type": name, "status": "True", "message": text} for name, text in conditions.items()],
        },
    }


class KubectlDouble:
    """Answers each look at the objects with the next of the given states."""

    def __init__(self, *states: list[Json]) -> None:
        self._states: Iterator[list[Json]] = iter(states)

    def text(self, *arguments: str, check: bool = True) -> str:
        return "NAME PHASE" if arguments[0] == "get" else "operator's last words"

    def json(self, *arguments: str) -> Mapping[str, object]:
        return {"items": next(self._states)}


def wait(*states: list[Json]) -> Progress:
    progress = Progress()
    wait_ready(cast(Kubectl, KubectlDouble(*states)), "demo", NAMES, Board(), progress, seconds=3)
    return progress


def test_ready_counts_only_for_the_present_generation() -> None:
    assert is_ready(thing("LLMDeployment", Ready="2 of 2"))
    assert not is_ready(thing("LLMDeployment", Ready="2 of 2", observed=1))
    assert not is_ready({"kind": "LLMDeployment", "metadata": {"name": "smollm2", "generation": 1}})


def test_the_wait_ends_when_both_are_ready() -> None:
    wait(
        [thing("LLMDeployment", Ready="1 of 1"), thing("LLMEngine", Reconciling="building")],
        [thing("LLMDeployment", Ready="1 of 1"), thing("LLMEngine", Ready="built")],
    )


def test_a_stalled_object_ends_the_wait_at_once() -> None:
    with pytest.raises(Failure, match="LLMEngine smollm2-rtx-ada needs attention: out of memory") as caught:
        wait([thing("LLMDeployment", Ready="1 of 1"), thing("LLMEngine", Stalled="out of memory")])
    assert "operator's last words" in caught.value.tail


def test_an_old_stall_does_not_speak_for_a_new_spec() -> None:
    wait(
        [thing("LLMDeployment", Ready="1 of 1"), thing("LLMEngine", Stalled="out of memory", observed=1)],
        [thing("LLMDeployment", Ready="1 of 1"), thing("LLMEngine", Ready="built")],
    )
