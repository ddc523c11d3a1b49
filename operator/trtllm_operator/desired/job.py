"""What fetch and build Jobs have in common: when to try again, when to give up, how long to stay."""

from __future__ import annotations

from typing import Any, Final

from trtllm_engine.contract import ExitCode

from .pod import CONTAINER

KEPT_SECONDS: Final = 86400
"""A finished Job stays for a day, so that its log can be read."""
KILLED: Final = 137
"""Exit code of a process that the kernel killed: trying again with the same memory ends the same way."""
HOPELESS: Final = (*(code for code in ExitCode if code not in (ExitCode.DONE, ExitCode.TRY_AGAIN)), KILLED)

FAILURE_POLICY: Final[dict[str, Any]] = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [int(code) for code in HOPELESS]},
        },
    ]
}
"""In this order: a pod that was evicted or preempted says nothing about the work, whatever its exit code."""


def job_spec(template: dict[str, Any], *, deadline_seconds: int, **more: Any) -> dict[str, Any]:
    """A Job that runs at most one pod at a time."""
    return {
        "parallelism": 1,
        "activeDeadlineSeconds": deadline_seconds,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": FAILURE_POLICY,
        **more,
        "template": template,
    }
