"""A test double: plays scheduler and kubelet on a control plane that has none, by writing pod statuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.builders import VERSIONS, smollm2_facts
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_until
from trtllm_engine.contract import Result

Json = dict[str, Any]
ENDED: Final = "2026-01-02T14:04:00Z"


@dataclass(frozen=True, slots=True)
class PlayedKubelet:
    """Moves the pods of one namespace on."""

    cluster: Cluster
    namespace: str

    def finish_fetch(self, versions: Mapping[str, str] = VERSIONS) -> None:
        """The fetch pod reports the small model's facts, and the toolchains of its image, and ends well."""
        pod = self._pod("fetch")
        self._end(pod, Result(ok=True, facts=smollm2_facts(), versions=dict(versions)))

    def finish_build(self) -> None:
        """The build pod reports a published rank and ends well."""
        self._end(self._pod("build"), Result(ok=True, files=1, bytes=2**28, seconds={"weights": 1.0}))

    def fail_build(self, said: Result) -> None:
        """The build pod ends badly, as `said` tells."""
        self._end(self._pod("build"), said, phase="Failed")

    def start_groups(self, count: int = 1) -> None:
        """The servers' pods run and are ready, as soon as there are so many new ones."""
        wait_until(lambda: self._pods("server", count), f"{count} server pods", 30)
        self.start_new_groups()

    def start_new_groups(self) -> None:
        """The servers' pods that there are run and are ready."""
        for pod in self._pods("server", 0):
            ready = [{"type": "Ready", "status": "True"}]
            self._patch(pod, {"phase": "Running", "conditions": ready, "containerStatuses": [_running()]})

    def _pod(self, role: str) -> str:
        return wait_until(lambda: self._pods(role, 1), f"the {role} pod", 30)[0]

    def _pods(self, role: str, count: int) -> list[str]:
        selector = f"inference.trtllm-operator.dev/role={role}"
        done = self.cluster.kubectl("-n", self.namespace, "get", "pods", "-l", selector, "-o", "json")
        open_pods = [
            item["metadata"]["name"]
            for item in json.loads(done.stdout)["items"]
            if item["status"].get("phase", "Pending") == "Pending"
        ]
        return open_pods if len(open_pods) >= count else []

    def _end(self, pod: str, said: Result, phase: str = "Succeeded") -> None:
        reason = "Completed" if said.ok else "Error"
        ended = {"exitCode": said.code, "reason": reason, "finishedAt": ENDED, "message": said.to_json()}
        self._patch(pod, {"phase": phase, "containerStatuses": [_container({"terminated": ended})]})

    def _patch(self, pod: str, status: Json) -> None:
        patch = json.dumps({"status": status})
        self.cluster.kubectl(
            *("-n", self.namespace, "patch", "pod", pod, "--subresource=status", "--type=merge", "-p", patch)
        )


def _container(state: Json) -> Json:
    return {"name": "engine", "image": "x", "imageID": "x", "ready": False, "restartCount": 0, "state": state}


def _running() -> Json:
    return _container({"running": {"startedAt": ENDED}}) | {"ready": True}
