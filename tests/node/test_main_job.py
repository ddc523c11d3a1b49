"""Apply an LLMDeployment, get an engine in a volume, a GPU StatefulSet, and an answer: every part real."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime

from tests.models import SMOLLM2
from tests.node.world import Namespace, condition, deployment, engine, is_ready
from tests.operator_process import OperatorProcess
from trtllm_operator.api.names import ROLE_LABEL


def test_a_deployment_becomes_ready_requests_a_gpu_and_answers_through_its_service(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply(deployment("story"))
    ready = namespace.wait_ready("llmdeployment", "story")

    status = ready["status"]
    assert status["phase"] == "Ready"
    assert status["display"]["ready"] == "1/1"
    assert status["display"]["engine"] == status["engine"]["key"][:12]
    assert condition(ready, "Available")["status"] == "True"

    (group,) = namespace.list("statefulset")
    container = group["spec"]["template"]["spec"]["containers"][0]
    assert group["metadata"]["name"] == "story-0"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"

    (revision,) = [
        r
        for r in namespace.list("controllerrevision")
        if r["metadata"]["ownerReferences"][0]["kind"] == "LLMDeployment"
    ]
    assert status["currentRevision"] == status["targetRevision"]
    assert revision["metadata"]["name"] == f"story-{status['currentRevision']}"
    assert status["engine"]["key"] in json.dumps(revision["data"]), "what was resolved is frozen"

    answer = namespace.complete("story", "the engine")
    assert answer["usage"]["completion_tokens"] > 0
    assert "cpu" in answer["system_fingerprint"], "the answer says what it was computed on"


def test_deleting_removes_workloads_and_services_and_keeps_the_engine_that_is_used_again_without_a_build(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply(deployment("again"))
    first = namespace.wait_ready("llmdeployment", "again")
    (built,) = namespace.list("llmengine")
    (job,) = [j for j in namespace.list("job") if j["metadata"]["name"].startswith("build-")]

    namespace.kubectl("delete", "llmdeployment", "again", "--timeout=60s")
    namespace.kubectl("wait", "--for=delete", "statefulset,service", "--all", "--timeout=60s")
    namespace.kubectl("wait", "--for=delete", "pod", "-l", f"{ROLE_LABEL}=server", "--timeout=60s")
    assert [e["metadata"]["uid"] for e in namespace.list("llmengine")] == [built["metadata"]["uid"]]

    namespace.apply(deployment("again"))
    second = namespace.wait_ready("llmdeployment", "again")
    assert second["status"]["engine"] == first["status"]["engine"]
    jobs = [j for j in namespace.list("job") if j["metadata"]["name"].startswith("build-")]
    assert [j["metadata"]["uid"] for j in jobs] == [job["metadata"]["uid"]], "no second build Job was made"


def test_the_real_model_shows_a_moving_percentage_and_its_rtx_plan_passes_verify(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    """The demo's engine: TensorRT-RTX for Ada, built by a Job's pod on the real kubelet, without a GPU."""
    namespace.apply(
        engine(
            "smollm2-engine",
            f"/models/{SMOLLM2}",
            dtype="bfloat16",
            toolchain="tensorrt_rtx",
            target={"computeCapability": "8.9"},
            buildConfig={"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048},
        )
    )
    shown: list[str] = []

    def built(obj: dict[str, object]) -> bool:
        line = namespace.kubectl("get", "llme", "smollm2-engine", "--no-headers").stdout
        shown.extend(word.rstrip(",") for word in line.split() if word.rstrip(",").endswith("%"))
        return is_ready(obj)

    ready = namespace.wait("llmengine", "smollm2-engine", built, "Ready", 300)
    percents = [int(text[:-1]) for text in shown]
    assert percents == sorted(percents), "progress never falls"
    assert len(set(percents)) >= 2, f"the percentage moved: {percents}"

    key = ready["status"]["key"]
    folder = namespace.folder_of(f"engine-{key[:16]}") / "engines" / key
    verify = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "verify"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "verify",
                    "image": ready["spec"].get("image") or _engine_image(namespace),
                    "args": ["verify", f"/store/engines/{key}"],
                    "volumeMounts": [{"name": "store", "mountPath": "/store", "readOnly": True}],
                }
            ],
            "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": f"engine-{key[:16]}"}}],
        },
    }
    namespace.apply(verify)
    ended = namespace.wait("pod", "verify", lambda p: p["status"]["phase"] in ("Succeeded", "Failed"), "over", 60)
    assert ended["status"]["phase"] == "Succeeded", namespace.kubectl("logs", "verify").stdout
    plan = (folder / "rank0000.engine").read_bytes()[:64]
    assert plan[:4] == plan[28:32] == b"vtrt"
    assert int.from_bytes(plan[32:36], "little") == 8, "the target mask says SM89"


def test_at_rest_the_operator_writes_nothing_but_its_lease_for_two_minutes(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    """I6, counted at the API server by its audit log."""
    namespace.apply(deployment("rest"))
    namespace.wait_ready("llmdeployment", "rest")
    namespace.wait("llmengine", namespace.list("llmengine")[0]["metadata"]["name"], is_ready, "Ready")
    start = datetime.now(UTC)
    # Two minutes of nothing are the subject of the test, not a way to wait for something.
    threading.Event().wait(120)
    writes = namespace.cluster.writes(start, "trtllm-operator/")
    assert {w.resource for w in writes} == {"leases"}, [w for w in writes if w.resource != "leases"]


def _engine_image(namespace: Namespace) -> str:
    (job,) = [j for j in namespace.list("job") if j["metadata"]["name"].startswith("build-")]
    return str(job["spec"]["template"]["spec"]["containers"][0]["image"])
