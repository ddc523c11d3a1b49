"""What Prometheus is told about the cluster is what the store holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.builders import NOW, a_deployment_object, an_engine_object
from tests.unit.decide.test_deployment import a_world, served, the_job
from tests.unit.decide.world import World
from trtllm_operator.api import names
from trtllm_operator.cluster.metrics import Metrics
from trtllm_operator.cluster.state_metrics import Census, StateCollector, census

Json = dict[str, Any]
KEY = "5eed" * 16
GPU = "nvidia.com/gpu"


def counted(world: World) -> Census:
    return census(world.store, GPU, world.now)


def a_building_engine(name: str = "smollm2-rtx-ada", **status: Any) -> Json:
    return an_engine_object(name, status={"phase": "Building", "key": KEY, "toolchain": "tensorrt_rtx", **status})


def a_build_job(world: World) -> Json:
    return world.put({"kind": "Job", "metadata": {"name": names.build_job(KEY)}})


def a_pod(name: str, owner: Json, *, status: Json, spec: Json | None = None, role: str = "build") -> Json:
    reference = {"kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    meta = {
        "name": name,
        "labels": {names.ROLE_LABEL: role},
        "ownerReferences": [{**reference, "controller": True}],
    }
    return {"kind": "Pod", "metadata": meta, "spec": spec or {}, "status": status}


def a_server(name: str, *, gpus: int, ready: bool, node: str | None = "gpu-a", phase: str = "Running") -> Json:
    group = {"kind": "StatefulSet", "metadata": {"name": "smollm2-0", "uid": "uid-of-a-group"}}
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
    requests = {"resources": {"requests": {GPU: str(gpus)}}}
    spec = {"containers": [requests], **({"nodeName": node} if node else {})}
    return a_pod(name, group, status=status, spec=spec, role="server")


def test_an_empty_cluster_has_none_of_anything() -> None:
    metrics = Metrics()
    metrics.collect(StateCollector(lambda: counted(World()), clock=lambda: 0.0))
    assert metrics.value("deployments", phase="Failed") == 0
    assert metrics.value("builds", state="queued", toolchain="torch") == 0
    assert metrics.value("build_longest_wait_seconds") == 0
    assert metrics.value("gpus", state="idle") == 0
    assert metrics.value("gpu_idle_seconds_total") == 0


def test_deployments_are_counted_by_phase_also_before_their_first_look() -> None:
    world = World()
    world.put(a_deployment_object("new"))
    world.put(a_deployment_object("fine", status={"phase": "Ready"}))
    world.put(a_deployment_object("fine-too", status={"phase": "Ready"}))
    assert counted(world).deployments == {"Pending": 1, "Ready": 2}


def test_what_is_stalled_is_counted_with_its_reason_and_namespace_and_never_its_name() -> None:
    world = World()
    stalled = {"type": "Stalled", "status": "True", "reason": "BuildFailed"}
    world.put(a_deployment_object("chat", status={"phase": "Failed", "conditions": [stalled]}))
    world.put(a_deployment_object("code", status={"phase": "Failed", "conditions": [stalled]}))
    world.put(a_deployment_object("fine", status={"conditions": [{"type": "Ready", "status": "True", "reason": "x"}]}))
    assert counted(world).stalled == {("LLMDeployment", "default", "BuildFailed"): 2}
    metrics = Metrics()
    metrics.collect(StateCollector(lambda: counted(world), clock=lambda: 0.0))
    assert metrics.value("stalled", kind="LLMDeployment", object_namespace="default", reason="BuildFailed") == 2
    assert b"chat" not in metrics.render()


def test_replicas_are_compared_with_what_is_asked_for() -> None:
    world = World()
    world.put(a_deployment_object("chat", spec={"replicas": 3}, status={"readyReplicas": 1}))
    world.put(a_deployment_object("one"))
    world.put(a_deployment_object("asleep", spec={"replicas": 5, "suspend": True}))
    assert counted(world).desired == {"default": 4}
    assert counted(world).ready == {"default": 1}


def test_a_build_is_queued_until_one_of_its_pods_runs() -> None:
    world = World()
    world.put(a_building_engine())
    assert counted(world).builds == {("queued", "tensorrt_rtx"): 1}
    job = a_build_job(world)
    world.put(a_pod("build-0", job, status={"phase": "Pending"}))
    assert counted(world).builds == {("queued", "tensorrt_rtx"): 1}
    world.put(a_pod("build-0", job, status={"phase": "Running"}))
    assert counted(world).builds == {("running", "tensorrt_rtx"): 1}


def test_the_longest_wait_is_that_of_the_oldest_queued_build() -> None:
    world = World()
    world.put(a_building_engine())
    a_build_job(world)
    world.later(minutes=5)
    assert counted(world).longest_wait == 300


def test_a_build_without_a_slot_waits_since_it_was_queued_and_not_since_the_engine_was_made() -> None:
    world = World()
    world.put(a_building_engine(queuedSince="2026-01-02T14:02:30Z"))
    assert counted(world).longest_wait == 30


def test_engines_that_share_files_count_once() -> None:
    world = World()
    ready = {"phase": "Ready", "key": KEY, "toolchain": "torch", "bytes": 1000}
    world.put(an_engine_object("elder", status=ready))
    world.put(an_engine_object("younger", status={**ready, "reference": "elder"}))
    world.put(an_engine_object("other", status={**ready, "key": "0" * 64, "bytes": 5}))
    world.put(a_building_engine("waits", reference="elder"))
    assert counted(world).engine_bytes == {"torch": 1005}
    assert counted(world).builds == {}
    assert counted(world).engines == {"Ready": 3, "Building": 1}


def test_gpus_are_idle_while_the_pod_that_holds_them_is_not_ready() -> None:
    world = World()
    world.put(a_server("ready", gpus=8, ready=True))
    world.put(a_server("loading", gpus=4, ready=False))
    world.put(a_server("unplaced", gpus=2, ready=False, node=None))
    world.put(a_server("ended", gpus=1, ready=False, phase="Failed"))
    assert counted(world).gpus == {"serving": 8, "idle": 4}


def test_gpus_go_by_the_name_that_a_spec_gives_them() -> None:
    world = World()
    world.put(a_server("ready", gpus=8, ready=True))
    assert census(world.store, "example.com/gpu", NOW).gpus == {"serving": 0}
    world.put(a_deployment_object(spec={"gpu": {"resourceName": GPU}}))
    assert census(world.store, "example.com/gpu", NOW).gpus == {"serving": 8}


@dataclass
class Clock:
    """Monotonic seconds that the test moves."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_idle_gpu_seconds_add_up_and_never_fall() -> None:
    world, clock, metrics = World(), Clock(), Metrics()
    world.put(a_server("loading", gpus=4, ready=False))
    metrics.collect(StateCollector(lambda: counted(world), clock=clock))
    clock.now = 10.0
    assert metrics.value("gpu_idle_seconds_total") == 40
    world.put(a_server("loading", gpus=4, ready=True))
    clock.now = 30.0
    assert metrics.value("gpu_idle_seconds_total") == 40


def test_a_deployment_that_the_operator_brought_up_is_counted_from_what_was_decided() -> None:
    world = served()
    taken = counted(world)
    assert taken.deployments == {"Ready": 1}
    assert taken.desired == taken.ready == {"default": 1}
    assert taken.engines == {"Ready": 1}
    assert taken.engine_bytes == {"torch": 100}
    assert taken.builds == {}
    assert taken.gpus == {"serving": 1}


def test_a_build_that_the_operator_started_runs_when_its_pod_does() -> None:
    world = a_world()
    world.settle("chat")
    world.job_succeeds(the_job(world, "-fetch-"))
    world.settle("chat")
    assert counted(world).builds == {("queued", "torch"): 1}
    world.job_runs(the_job(world, "build-"), percent=10.0)
    assert counted(world).builds == {("running", "torch"): 1}
