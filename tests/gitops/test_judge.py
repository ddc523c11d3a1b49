"""What is judged on every watch event of the other tiers finds what it is there to find."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW, a_deployment_object
from tests.gitops.judge import faults
from tests.gitops.recorder import Seen


def seen(generation: int, observed: int, **conditions: str) -> Seen:
    """A version of one object with some conditions."""
    status: dict[str, Any] = {
        "observedGeneration": observed,
        "conditions": [{"type": t, "status": s, "observedGeneration": observed} for t, s in conditions.items()],
    }
    obj = a_deployment_object("chat", status=status)
    obj["metadata"]["generation"] = generation
    return Seen(NOW, "MODIFIED", obj)


def test_a_life_without_contradiction_is_found_faultless() -> None:
    life = [seen(1, 1, Ready="False", Reconciling="True"), seen(2, 1, Ready="True"), seen(2, 2, Ready="True")]
    assert faults(life) == []


@pytest.mark.parametrize(
    ("life", "fault"),
    [
        ([seen(1, 1, Ready="True", Stalled="True")], "Ready=True with ['Stalled']"),
        ([seen(1, 1, Ready="False")], "Ready=False with nothing abnormal"),
        ([seen(1, 1, Ready="False", Stalled="True", Reconciling="True")], "Reconciling and Stalled at once"),
        ([seen(1, 1, Ready="False", Stalled="False", Reconciling="True")], "Stalled is there and not True"),
        ([seen(1, 1, Stalled="True")], "no condition Ready"),
        ([seen(1, 2, Ready="True")], "observedGeneration exceeds the generation"),
        ([seen(2, 2, Ready="True"), seen(2, 1, Ready="True")], "observedGeneration fell from 2 to 1"),
    ],
)
def test_a_fault_is_told_with_the_object_that_had_it(life: list[Seen], fault: str) -> None:
    assert f"LLMDeployment default/chat: {fault}" in faults(life)
