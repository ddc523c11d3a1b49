"""The operator process on a real control plane: the invariants that need no container to run.

Scheduler and kubelet are played by a double; API server, Job, StatefulSet and garbage collector are real.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.played_kubelet import PlayedKubelet
from tests.builders import HUB, a_deployment_object, merged
from tests.cluster.binaries import binary
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_until
from tests.operator_process import OperatorProcess

Json = dict[str, Any]
TOKEN = "hf_this-value-must-be-seen-nowhere"


class Deployment:
    """One LLMDeployment named `chat`, in the words of a test."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.kubelet = PlayedKubelet(cluster, namespace)

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.cluster.kubectl("-n", self.namespace, *args, input=input, check=check)

    def apply(self, **spec: Any) -> None:
        obj = a_deployment_object("chat", spec=spec)
        obj["metadata"] = {"name": "chat"}
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump(obj))

    def get(self, kind: str = "llmdeployment", name: str = "chat") -> Json | None:
        out = self.kubectl("get", kind, name, "-o", "json", "--ignore-not-found").stdout
        return json.loads(out) if out.strip() else None

    def list(self, kind: str) -> list[Json]:
        items: list[Json] = json.loads(self.kubectl("get", kind, "-o", "json").stdout)["items"]
        return items

    def condition(self, type: str) -> Json:
        status = (self.get() or {}).get("status") or {}
        return next((c for c in status.get("conditions") or () if c["type"] == type), {})

    def wait_reason(self, reason: str, seconds: float = 30) -> Json:
        def told() -> Json | None:
            ready = self.condition("Ready")
            return ready if ready.get("reason") == reason else None

        try:
            return wait_until(told, f"reason {reason}", seconds)
        except Exception as error:
            error.add_note(json.dumps(self.condition("Ready")))
            raise

    def roll_over(self, replicas: int, seconds: float = 60) -> None:
        """Each new pod gets ready, until the revision that is asked for serves alone."""

        def rolled() -> bool:
            self.kubelet.start_new_groups()
            status = (self.get() or {})["status"]
            at_target = status["currentRevision"] == status["targetRevision"]
            return bool(at_target and status["updatedReplicas"] == replicas)

        wait_until(rolled, "the rollout to be complete", seconds)
        wait_until(lambda: self.condition("Ready").get("status") == "True", "Ready", 30)

    def become_ready(self, replicas: int = 1) -> None:
        self.kubelet.finish_fetch()
        self.kubelet.finish_build()
        self.kubelet.start_groups(replicas)
        wait_until(lambda: self.condition("Ready").get("status") == "True", "Ready", 30)


@pytest.fixture
def chat(cluster: Cluster, namespace: str) -> Deployment:
    return Deployment(cluster, namespace)


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(cluster.kubeconfig, tmp_path, {"toolchain": "torch"}) as process:
        yield process


def test_the_whole_life_from_apply_to_ready_to_gone(operator: OperatorProcess, chat: Deployment) -> None:
    chat.apply()
    chat.become_ready()
    columns = chat.kubectl("get", "llmd", "chat").stdout.splitlines()
    assert columns[0].split() == ["NAME", "READY", "PHASE", "ENGINE", "MODEL", "PARALLEL", "REASON", "AGE"]
    assert columns[1].split()[1:3] == ["1/1", "Ready"]
    chat.kubectl("delete", "llmdeployment", "chat", "--timeout=30s")
    wait_until(lambda: not chat.kubectl("get", "sts,svc", "-o", "name").stdout, "workloads and Services gone", 30)
    assert chat.kubectl("get", "llme", "-o", "name").stdout.strip(), "the engine stays"


@pytest.mark.parametrize("propagation", ["foreground", "background", "orphan"])
def test_deletion_with_every_propagation_ends(propagation: str, operator: OperatorProcess, chat: Deployment) -> None:
    chat.apply()
    chat.become_ready()
    chat.kubectl("delete", "llmdeployment", "chat", f"--cascade={propagation}", "--timeout=30s")
    assert chat.get() is None
    left = chat.kubectl("get", "sts", "-o", "name").stdout
    if propagation == "orphan":
        assert left.strip() == "statefulset.apps/chat-0", "orphans are left to their fate"
    else:
        wait_until(lambda: not chat.kubectl("get", "sts", "-o", "name").stdout, "StatefulSets gone", 30)


def test_a_bad_spec_is_told_in_status_within_two_seconds(operator: OperatorProcess, chat: Deployment) -> None:
    """From the object's arrival at the API server to that of its status, by the audit log: no client's time counts."""
    start = datetime.now(UTC)
    chat.apply(model="/etc/passwd")
    told = wait_until(lambda: chat.condition("Ready"), "the first status", 30)
    assert told["reason"] == "InvalidSpec"

    def written(agent: str, subresource: str) -> datetime | None:
        found = chat.cluster.writes(start, agent)
        ours = [w for w in found if (w.namespace, w.name, w.subresource) == (chat.namespace, "chat", subresource)]
        return ours[0].received if ours else None

    created = wait_until(lambda: written("kubectl", ""), "the creation in the audit log", 15)
    answered = wait_until(lambda: written("trtllm-operator/", "status"), "the status in the audit log", 15)
    assert (answered - created).total_seconds() <= 2
    assert "spec.model" in told["message"]
    assert chat.condition("Stalled")["status"] == "True"
    assert not chat.kubectl("get", "job,llme,pvc", "-o", "name").stdout, "a bad spec creates nothing"


def test_i4_observed_generation_never_falls_and_never_exceeds_the_generation(
    operator: OperatorProcess, chat: Deployment, tmp_path: Path
) -> None:
    argv = [str(binary("kubectl")), f"--kubeconfig={chat.cluster.kubeconfig}", "-n", chat.namespace]
    seen = tmp_path / "seen.json"
    with seen.open("wb") as out:
        watch = subprocess.Popen([*argv, "get", "llmd", "-w", "-o", "json", "--output-watch-events"], stdout=out)
        try:
            chat.apply()
            for drain in range(5):
                chat.apply(serving={"drainSeconds": drain})
            wait_until(lambda: _observed(chat) == 6, "the last generation to be observed", 30)
        finally:
            watch.terminate()
            watch.wait(timeout=10)
    pairs = [
        (event["object"]["metadata"]["generation"], (event["object"].get("status") or {}).get("observedGeneration", 0))
        for event in _json_documents(seen.read_text())
    ]
    assert all(observed <= generation for generation, observed in pairs), pairs
    assert [o for _, o in pairs] == sorted(o for _, o in pairs), pairs


def test_i5_the_operator_writes_only_its_own_children_status_lease_and_events(
    operator: OperatorProcess, chat: Deployment
) -> None:
    start = datetime.now(UTC)
    chat.kubectl("create", "service", "clusterip", "bystander", "--tcp=80")
    chat.apply()
    chat.become_ready()
    ours = {"llmdeployments", "llmengines", "jobs", "statefulsets", "services", "persistentvolumeclaims"}
    ours |= {"controllerrevisions", "poddisruptionbudgets", "leases", "events"}
    for write in chat.cluster.writes(start, "trtllm-operator/"):
        assert write.resource in ours, write
        assert write.name != "bystander", write
        if write.resource == "llmdeployments":
            assert write.subresource == "status", "a spec is never written"


def test_i7_the_queue_drains(operator: OperatorProcess, chat: Deployment) -> None:
    chat.apply()
    chat.become_ready()
    empty = ("trtllm_operator_queue_ready 0", "trtllm_operator_queue_in_flight 0", "trtllm_operator_queue_failing 0")
    wait_until(lambda: all(line in operator.metrics() for line in empty), "the queue to drain", 15)


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("service", ("create", "service", "clusterip", "chat", "--tcp=80")),
        ("statefulset", ()),
    ],
)
def test_i9_a_foreign_object_of_our_name_is_named_and_left_alone(
    kind: str, make: tuple[str, ...], operator: OperatorProcess, chat: Deployment
) -> None:
    if make:
        chat.kubectl(*make)
    else:
        labels = {"app": "theirs"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "theirs"}]}}
        spec = {"serviceName": "x", "selector": {"matchLabels": labels}, "template": template}
        theirs = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "chat-0"}, "spec": spec}
        chat.kubectl("apply", "-f", "-", input=yaml.safe_dump(theirs))
    name = "chat" if kind == "service" else "chat-0"
    before = chat.get(kind, name)
    assert before is not None
    chat.apply()
    chat.kubelet.finish_fetch()
    if kind == "statefulset":
        chat.kubelet.finish_build()
    told = chat.wait_reason("NameConflict")
    assert name in told["message"]
    after = chat.get(kind, name)
    assert after is not None and after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "ownerReferences" not in after["metadata"]
    chat.kubectl("delete", kind, name)
    wait_until(lambda: chat.condition("Ready").get("reason") != "NameConflict", "the conflict to end", 30)


def test_i8_a_quota_makes_it_wait_with_the_reason_and_it_goes_on_by_itself(
    operator: OperatorProcess, chat: Deployment
) -> None:
    chat.kubectl("create", "quota", "none", "--hard=count/jobs.batch=0")
    wait_until(lambda: (chat.get("quota", "none") or {}).get("status", {}).get("hard"), "the quota to be in force", 30)
    chat.apply()
    told = chat.wait_reason("WaitingForQuota")
    assert "count/jobs.batch" in told["message"]
    assert chat.condition("Reconciling")["status"] == "True"
    chat.kubectl("delete", "quota", "none")
    chat.wait_reason("FetchingModel")


def test_i12_the_hub_token_is_in_no_object_log_event_or_metric(operator: OperatorProcess, chat: Deployment) -> None:
    chat.kubectl("create", "secret", "generic", "hub", f"--from-literal=token={TOKEN}")
    chat.apply(**merged(HUB, {"hubTokenSecretRef": {"name": "hub", "key": "token"}}) | {"modelVolume": None})
    chat.become_ready()
    kinds = "llmd,llme,jobs,pods,sts,svc,pvc,controllerrevisions,events"
    assert TOKEN not in chat.kubectl("get", kinds, "-o", "yaml").stdout
    assert TOKEN not in operator.log.read_text()
    assert TOKEN not in operator.metrics()


def test_a_restart_at_rest_writes_nothing(operator: OperatorProcess, chat: Deployment) -> None:
    chat.apply()
    chat.become_ready()
    wait_until(lambda: "trtllm_operator_queue_ready 0" in operator.metrics(), "the queue to drain", 15)
    assert operator.stop() == 0
    start = datetime.now(UTC)
    operator.start()
    wait_until(_drained(operator), "the queue to drain", 15)
    # An answer is logged a moment after it is given; a renewal that came later tells that the earlier ones are there.
    drained = datetime.now(UTC)
    wait_until(lambda: chat.cluster.writes(drained, "trtllm-operator/"), "a renewal after the queue was drained", 15)
    # What earlier tests left in namespaces of their own may still be put in order there.
    elsewhere = {name for name in _namespaces(chat.cluster) if name.startswith("test-") and name != chat.namespace}
    writes = [w for w in chat.cluster.writes(start, "trtllm-operator/") if w.namespace not in elsewhere]
    assert {write.resource for write in writes} == {"leases"}, writes


@pytest.mark.parametrize("kind_and_name", ["service/chat", "service/chat-ranks", "statefulset/chat-0"])
def test_what_somebody_deletes_comes_back_by_itself(
    kind_and_name: str, operator: OperatorProcess, chat: Deployment
) -> None:
    chat.apply()
    chat.become_ready()
    kind, _, name = kind_and_name.partition("/")
    before = chat.get(kind, name)
    assert before is not None
    chat.kubectl("delete", kind, name, "--timeout=30s")

    def is_back() -> bool:
        now = chat.get(kind, name)
        return now is not None and now["metadata"]["uid"] != before["metadata"]["uid"]

    wait_until(is_back, f"{kind_and_name} to be back", 15)


def test_the_scale_subresource_moves_replicas_and_zero_is_ready(operator: OperatorProcess, chat: Deployment) -> None:
    chat.apply()
    chat.become_ready()
    chat.kubectl("scale", "llmd/chat", "--replicas=0")
    chat.wait_reason("ScaledToZero")
    assert chat.condition("Ready")["status"] == "True"
    chat.kubectl("scale", "llmd/chat", "--replicas=2")
    chat.kubelet.start_groups(2)
    wait_until(lambda: ((chat.get() or {}).get("status") or {}).get("readyReplicas") == 2, "two replicas", 30)
    assert chat.condition("Ready")["status"] == "True"


def _drained(operator: OperatorProcess) -> Callable[[], bool]:
    lines = ("trtllm_operator_queue_ready 0", "trtllm_operator_queue_in_flight 0")
    return lambda: all(line in operator.metrics() for line in lines)


def _namespaces(cluster: Cluster) -> list[str]:
    return cluster.kubectl("get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}").stdout.split()


def _observed(chat: Deployment) -> int:
    return int(((chat.get() or {}).get("status") or {}).get("observedGeneration", 0))


def _json_documents(text: str) -> Iterator[Json]:
    decoder, position = json.JSONDecoder(), 0
    while position < len(text.rstrip()):
        document, end = decoder.raw_decode(text, position)
        yield document
        position = end + 1 if text[end : end + 1].isspace() else end
