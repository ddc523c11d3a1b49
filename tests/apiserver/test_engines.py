"""Engines on a real control plane: corrupt files, slots of builds, and what is left behind.

Scheduler and kubelet are played by a double; API server, Job, claim and garbage collection are real.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.played_kubelet import PlayedKubelet
from tests.apiserver.test_operator import Deployment
from tests.builders import an_engine_object
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_until
from tests.operator_process import OperatorProcess
from trtllm_engine.contract import ExitCode, Result
from trtllm_operator.api import names

Json = dict[str, Any]
DAMAGE = "rank0000.engine: its bytes were altered"


class Engines:
    """The LLMEngines of a namespace, in the words of a test."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.kubelet = PlayedKubelet(cluster, namespace)

    def kubectl(self, *args: str, input: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *args, input=input).stdout

    def all(self, kind: str) -> list[Json]:
        found: list[Json] = json.loads(self.kubectl("get", kind, "-o", "json"))["items"]
        return found

    def apply(self, name: str, **spec: Any) -> None:
        obj = an_engine_object(name, spec={"toolchain": "torch", "target": None, **spec})
        obj["metadata"] = {"name": name}
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump(obj))

    def status(self, name: str | None = None) -> Json:
        """Of the engine with this name, or of the only one."""
        found = [e for e in self.all("llmengine") if name in (None, e["metadata"]["name"])]
        return (found[0].get("status") or {}) if found else {}

    def reason(self, name: str) -> str:
        return next((c["reason"] for c in self.status(name).get("conditions") or () if c["type"] == "Ready"), "")

    def wait_reason(self, name: str, reason: str) -> None:
        wait_until(lambda: self.reason(name) == reason, f"{name} to say {reason}", 30)

    def wait_phase(self, name: str, phase: str) -> None:
        wait_until(lambda: self.status(name).get("phase") == phase, f"{name} to be {phase}", 30)

    def builds(self) -> list[Json]:
        return [job for job in self.all("job") if job["metadata"]["name"].startswith("build-")]

    def server_finds_a_corrupt_file(self, pod: str) -> None:
        """Its container began after everything that has happened, and ended at the first rank's file."""
        began = datetime.now(UTC) + timedelta(seconds=2)
        said = Result(ok=False, code=ExitCode.CORRUPT_INPUT, field="rank0000.engine", message=DAMAGE)
        ended = {
            "exitCode": 6,
            "reason": "Error",
            "startedAt": f"{began:%Y-%m-%dT%H:%M:%SZ}",
            "finishedAt": f"{began + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}",
            "message": said.to_json(),
        }
        container = {"name": "engine", "image": "x", "imageID": "x", "ready": False, "restartCount": 1}
        container |= {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}
        unready = [{"type": "Ready", "status": "False"}]
        patch = json.dumps({"status": {"conditions": unready, "containerStatuses": [container]}})
        self.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture
def engines(cluster: Cluster, namespace: str) -> Engines:
    return Engines(cluster, namespace)


def operate(cluster: Cluster, folder: Path, **config: Any) -> OperatorProcess:
    return OperatorProcess(cluster.kubeconfig, folder, {"toolchain": "torch", **config})


def test_a_corrupt_engine_is_built_anew_once_and_then_stalls_and_what_serves_goes_on(
    cluster: Cluster, namespace: str, engines: Engines, tmp_path: Path
) -> None:
    chat = Deployment(cluster, namespace)
    with operate(cluster, tmp_path) as operator:
        chat.apply(replicas=2)
        chat.become_ready(2)
        groups = [group["metadata"]["uid"] for group in engines.all("sts")]
        (first,) = engines.builds()
        engines.server_finds_a_corrupt_file("chat-0-0")
        again = wait_until(
            lambda: [job for job in engines.builds() if job["metadata"]["uid"] != first["metadata"]["uid"]],
            "a second build",
            30,
        )
        assert again[0]["metadata"]["annotations"][names.REBUILD_ANNOTATION] == "1"
        operator.kill()
        operator.start()
        chat.kubelet.finish_build()
        wait_until(lambda: engines.status().get("phase") == "Ready", "the rebuilt engine to be ready", 30)
        assert engines.status()["rebuilds"] == 1
        assert [job["metadata"]["uid"] for job in engines.builds()] == [again[0]["metadata"]["uid"]]
        engines.server_finds_a_corrupt_file("chat-0-0")
        told = chat.wait_reason("EngineCorrupt")
        wait_until(lambda: engines.status().get("phase") == "Failed", "the engine to be given up", 30)
        assert DAMAGE in told["message"]
        wait_until(lambda: chat.condition("Stalled").get("reason") == "EngineCorrupt", "Stalled", 30)
        assert chat.condition("Available")["status"] == "True"
        assert [group["metadata"]["uid"] for group in engines.all("sts")] == groups, "what serves was left alone"


def test_builds_wait_for_a_slot_in_order_and_a_restart_moves_nobody(
    cluster: Cluster, engines: Engines, tmp_path: Path
) -> None:
    with operate(cluster, tmp_path, buildsPerNamespace=1) as operator:
        engines.apply("first", buildConfig={"maxBatchSize": 1})
        engines.kubelet.finish_fetch()
        wait_until(lambda: engines.reason("first") == "BuildingEngine" and engines.builds(), "the first build", 30)
        for size, name in enumerate(("second", "third"), start=2):
            engines.apply(name, buildConfig={"maxBatchSize": size})
            engines.kubelet.finish_fetch()
            engines.wait_reason(name, "WaitingForBuildSlot")
        before = engines.status("second"), engines.status("third")
        assert before[1]["message"] == "2nd of 2 in the namespace's queue; building: first (1 of 1)"
        operator.kill()
        operator.start()
        assert (engines.status("second"), engines.status("third")) == before
        assert len(engines.builds()) == 1
        engines.kubelet.finish_build()
        wait_until(lambda: engines.reason("second") == "BuildingEngine", "the second build", 30)
        assert engines.reason("third") == "WaitingForBuildSlot"
        wait_until(lambda: "1st of 1" in engines.status("third")["message"], "the third to move up", 30)


def test_what_an_engine_that_somebody_deleted_leaves_behind_goes_after_its_retention(
    cluster: Cluster, engines: Engines, tmp_path: Path
) -> None:
    with operate(cluster, tmp_path):
        claims = {}
        for size, (name, retention) in enumerate((("brief", "1s"), ("long", "30d")), start=1):
            engines.apply(name, retention=retention, buildConfig={"maxBatchSize": size})
            engines.kubelet.finish_fetch()
            engines.kubelet.finish_build()
            engines.wait_phase(name, "Ready")
            claims[name] = names.engine_claim(engines.status(name)["key"])
        engines.kubectl("delete", "llmengine", "brief", "long", "--timeout=30s")

        def left() -> dict[str, str | None]:
            found = {claim["metadata"]["name"]: claim["metadata"] for claim in engines.all("pvc")}
            return {
                name: (found[claim].get("annotations") or {}).get(names.UNREFERENCED_ANNOTATION)
                for name, claim in claims.items()
                if claim in found
            }

        wait_until(lambda: "brief" not in left(), "the claim of the brief one to go", 30)
        wait_until(lambda: left().get("long"), "the other one to be marked", 30)
