"""A newer operator takes over a live cluster: what serves stays as it was frozen, until somebody asks for more.

The earlier operator is the real one of a commit of this project, kept beside this test; made by
`git archive COMMIT operator/trtllm_operator engine-image/trtllm_engine/{__init__,contract}.py | xz`.
"""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.test_operator import Deployment
from tests.builders import an_engine_object
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_until
from tests.operator_process import OperatorProcess
from trtllm_operator.api.names import REFRESH_ANNOTATION

COMMIT: Final = "d156c91"
ARCHIVE: Final = Path(__file__).parent / "earlier" / f"operator-{COMMIT}.tar.xz"
KEPT: Final = ("statefulset", "pod", "job", "llmengine", "controllerrevision", "service", "pvc", "poddisruptionbudget")
REPLICAS: Final = 2
NEWER_VERSIONS: Final = {"torch": "torch-9.9.9+engine-9.9.9"}


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The packages of the earlier operator."""
    folder = tmp_path / COMMIT
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def identities(chat: Deployment) -> dict[str, dict[str, tuple[str, str]]]:
    """Of all children: UID and what was asked for last."""
    return {
        kind: {
            o["metadata"]["name"]: (o["metadata"]["uid"], str(o["metadata"].get("generation", "")))
            for o in chat.list(kind)
        }
        for kind in KEPT
    }


def prebuilt() -> dict[str, Any]:
    spec = {"toolchain": None, "target": None, "dtype": "float32", "buildConfig": {"maxBatchSize": 3}}
    return {**an_engine_object("prebuilt", spec=spec), "metadata": {"name": "prebuilt"}}


def phase(chat: Deployment) -> str | None:
    status = (chat.get("llmengine", "prebuilt") or {}).get("status") or {}
    return status.get("phase")


def test_an_upgrade_restarts_no_pod_and_rebuilds_nothing_and_a_refresh_rolls(
    cluster: Cluster, namespace: str, earlier: Path, tmp_path: Path
) -> None:
    chat = Deployment(cluster, namespace)
    old = {"toolchain": "torch", "engineImage": "registry.example/engine:1"}
    with OperatorProcess(cluster.kubeconfig, tmp_path / "old", old, source=earlier):
        chat.apply(replicas=REPLICAS)
        chat.become_ready(REPLICAS)
        # A user's own, of other content, that names neither image nor toolchain.
        chat.kubectl("apply", "-f", "-", input=yaml.safe_dump(prebuilt()))
        chat.kubelet.finish_fetch()
        chat.kubelet.finish_build()
        wait_until(lambda: phase(chat) == "Ready", "the prebuilt engine", 30)
    before, served = identities(chat), (chat.get() or {})["status"]

    new: dict[str, Any] = {"toolchain": "torch", "engineImage": "registry.example/engine:2"}
    start = datetime.now(UTC)
    with OperatorProcess(cluster.kubeconfig, tmp_path / "new", new) as operator:
        idle = ("trtllm_operator_queue_ready 0", "trtllm_operator_queue_in_flight 0")
        wait_until(lambda: all(line in operator.metrics() for line in idle), "the queue to drain", 30)
        after = identities(chat)
        for kind in KEPT:
            assert after[kind] == before[kind], kind
        now = (chat.get() or {})["status"]
        for field in ("phase", "currentRevision", "targetRevision", "readyReplicas", "url"):
            assert now[field] == served[field], field
        assert chat.condition("Ready")["status"] == "True"
        here = [w for w in cluster.writes(start, "trtllm-operator/") if w.namespace == namespace]
        assert {w.resource for w in here if w.subresource != "status"} <= {"events"}, here

        assert phase(chat) == "Ready"

        chat.kubectl("annotate", "llmd", "chat", f"{REFRESH_ANNOTATION}=2026-01-02T14:03:00Z")
        chat.kubelet.finish_fetch(NEWER_VERSIONS)
        chat.kubelet.finish_build()
        chat.roll_over(REPLICAS)
        refreshed = (chat.get() or {})["status"]
        assert refreshed["currentRevision"] != served["currentRevision"]
        assert refreshed["engine"]["key"] != served["engine"]["key"], "another version of the toolchain"
        templates = [s["spec"]["template"] for s in chat.list("statefulset")]
        images = {t["spec"]["containers"][0]["image"] for t in templates}
        assert images == {"registry.example/engine:2"}
