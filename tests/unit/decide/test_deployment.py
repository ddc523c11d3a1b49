"""Decisions for an LLMDeployment, from the first look to rest, and what keeps serving while the spec changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import a_deployment_object, smollm2_facts
from tests.unit.decide.world import World
from trtllm_engine.contract import ExitCode
from trtllm_operator.api.conditions import Reason
from trtllm_operator.cluster.snapshots import concerned
from trtllm_operator.decide.plan import Apply, Course, Create, Delete
from trtllm_operator.reconcile.store import Key


def a_world(**spec: Any) -> World:
    world = World()
    world.a_node("gpu-a", gpus=8)
    world.put(a_deployment_object("chat", spec=spec))
    return world


def condition(world: World, type: str) -> dict[str, Any]:
    conditions = world.get("LLMDeployment", "chat")["status"]["conditions"]
    return next((c for c in conditions if c["type"] == type), {})


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.get("LLMDeployment", "chat")["status"]
    return found


def the_job(world: World, part: str) -> str:
    (name,) = [name for name in world.names("Job") if part in name]
    return name


def served(**spec: Any) -> World:
    """A world in which the deployment is Ready."""
    world = a_world(**spec)
    world.settle("chat")
    world.job_succeeds(the_job(world, "-fetch-"))
    world.settle("chat")
    world.job_succeeds(the_job(world, "build-"), bytes=100, seconds={"build": 1.0})
    world.settle("chat")
    for group in world.names("StatefulSet"):
        world.group_becomes_ready(group)
    assert world.settle("chat").verdict.course is Course.SETTLED
    return world


def test_the_first_look_asks_for_the_model_and_makes_nothing_else() -> None:
    world = a_world()
    plan = world.look_at_deployment("chat")
    assert [type(action) for action in plan.actions] == [Create]
    assert plan.verdict.reason == Reason.FETCHING_MODEL
    assert status(world)["phase"] == "Fetching"
    assert condition(world, "Ready")["status"] == "False"
    assert condition(world, "Reconciling")["status"] == "True"


def test_a_hub_model_gets_the_cache_claim_before_the_job() -> None:
    world = a_world(model="org/name", modelVolume=None)
    plan = world.look_at_deployment("chat")
    kinds = [action.manifest["kind"] for action in plan.actions if isinstance(action, Create)]
    assert kinds == ["PersistentVolumeClaim", "Job"]


def test_what_was_resolved_is_frozen_before_an_engine_is_asked_for() -> None:
    world = a_world()
    world.look_at_deployment("chat")
    world.job_succeeds(the_job(world, "-fetch-"))
    world.look_at_deployment("chat")
    assert world.names("ControllerRevision") and not world.names("LLMEngine")
    world.look_at_deployment("chat")
    assert world.names("LLMEngine")


def test_no_group_exists_before_the_engine_is_ready() -> None:
    world = a_world()
    world.settle("chat")
    world.job_succeeds(the_job(world, "-fetch-"))
    world.settle("chat")
    assert world.names("StatefulSet") == []
    assert status(world)["phase"] == "Building"


def test_the_build_shows_percent_and_time_left_in_the_column() -> None:
    world = a_world()
    world.settle("chat")
    world.job_succeeds(the_job(world, "-fetch-"))
    world.settle("chat")
    world.job_runs(the_job(world, "build-"), 41.7, eta=420)
    world.settle("chat")
    assert status(world)["display"]["engine"] == "41%, 7m left"
    assert condition(world, "Ready")["reason"] == "BuildingEngine"
    assert "since 14:03Z" in condition(world, "Ready")["message"]


def test_ready_means_every_wanted_group_is_ready_at_the_target_revision() -> None:
    """I3."""
    world = served(replicas=2)
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]
    assert status(world)["phase"] == "Ready"
    assert status(world)["display"] == {
        "ready": "2/2",
        "engine": status(world)["engine"]["key"][:12],
        "parallel": "tp1",
    }
    assert status(world)["currentRevision"] == status(world)["targetRevision"]
    assert not condition(world, "Reconciling") and not condition(world, "Stalled")


def test_at_rest_a_look_plans_nothing_that_differs() -> None:
    """I6: the same facts give the same status, byte for byte."""
    world = served()
    before = dict(status(world))
    world.later(hours=3)
    world.settle("chat")
    assert status(world) == before


def test_an_invalid_spec_stalls_with_the_field_and_keeps_what_serves_scaled() -> None:
    world = served(replicas=2)
    world.change("LLMDeployment", "chat", spec={"model": "/etc/passwd", "replicas": 3})
    plan = world.settle("chat")
    assert plan.verdict.course is Course.STALLED
    assert "spec.model" in plan.verdict.message
    assert status(world)["phase"] == "Degraded"
    assert condition(world, "Available")["status"] == "True"
    assert condition(world, "SpecValid")["status"] == "False"
    assert world.names("StatefulSet") == ["chat-0", "chat-1", "chat-2"]


def test_a_failed_build_of_a_new_revision_leaves_the_old_groups_alone() -> None:
    world = served()
    world.change("LLMDeployment", "chat", spec={"dtype": "bfloat16"})
    world.settle("chat")
    (build,) = [job for job in world.names("Job") if job.startswith("build-") and not _is_complete(world, job)]
    world.pod_fails(build, ExitCode.BUILDER_ERROR, message="no kernel", log="[E] no kernel for this")
    plan = world.settle("chat")
    assert plan.verdict.course is Course.STALLED
    assert condition(world, "Stalled")["reason"] == "BuildFailed"
    assert "keeps serving" in condition(world, "Stalled")["message"]
    assert "[E] no kernel for this" in condition(world, "Stalled")["message"]
    assert world.names("StatefulSet") == ["chat-0"]
    assert status(world)["display"]["ready"] == "1/1"
    assert condition(world, "Available")["status"] == "True"


def test_a_new_revision_surges_and_removes_the_old_group_only_when_the_new_one_is_ready() -> None:
    world = served()
    old = world.get("StatefulSet", "chat-0")["metadata"]["uid"]
    world.change("LLMDeployment", "chat", spec={"serving": {"drainSeconds": 1}})
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"], "same engine: no build, a second group"
    assert len([job for job in world.names("Job") if job.startswith("build-")]) == 1
    world.group_becomes_ready("chat-1")
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-1"]
    assert old not in {world.get("StatefulSet", name)["metadata"]["uid"] for name in world.names("StatefulSet")}
    assert status(world)["phase"] == "Ready"


def test_a_surge_that_finds_no_gpu_goes_one_by_one_and_says_so() -> None:
    world = served()
    world.change("LLMDeployment", "chat", spec={"serving": {"drainSeconds": 1}})
    world.settle("chat")
    world.group_pod(
        "chat-1",
        {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
                }
            ],
        },
    )
    plan = world.look_at_deployment("chat")
    assert plan.verdict.reason == Reason.WAITING_FOR_GPUS
    assert "one by one" in plan.verdict.message
    assert world.names("StatefulSet") == ["chat-1"]


def test_scaling_changes_no_revision_and_zero_is_ready() -> None:
    world = served()
    target = status(world)["targetRevision"]
    world.change("LLMDeployment", "chat", spec={"replicas": 0})
    plan = world.settle("chat")
    assert plan.verdict == plan.verdict.__class__(
        course=Course.SETTLED, reason=Reason.SCALED_TO_ZERO, message=plan.verdict.message
    )
    assert world.names("StatefulSet") == []
    assert status(world)["targetRevision"] == target
    world.change("LLMDeployment", "chat", spec={"replicas": 2})
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]


def test_suspend_removes_the_groups_and_keeps_the_engine() -> None:
    world = served()
    world.change("LLMDeployment", "chat", spec={"suspend": True})
    world.settle("chat")
    assert world.names("StatefulSet") == []
    assert len(world.names("LLMEngine")) == 1
    assert status(world)["phase"] == "Suspended"


def test_a_foreign_template_edit_is_repaired_and_no_group_is_deleted() -> None:
    world = served()
    world.change("StatefulSet", "chat-0", spec={"template": {"spec": {"containers": [{"name": "x", "image": "evil"}]}}})
    plan = world.look_at_deployment("chat")
    repaired = [a.manifest["metadata"]["name"] for a in plan.actions if isinstance(a, Apply)]
    assert "chat-0" in repaired
    assert not any(isinstance(a, Delete) for a in plan.actions)


def test_a_crashing_replica_stalls_with_what_it_said_last() -> None:
    world = a_world()
    world.settle("chat")
    world.job_succeeds(the_job(world, "-fetch-"))
    world.settle("chat")
    world.job_succeeds(the_job(world, "build-"), bytes=1, seconds={})
    world.settle("chat")
    ended = {"exitCode": 6, "message": '{"ok":false,"code":6,"message":"rank0000.engine is cut"}'}
    world.group_pod(
        "chat-0", {"phase": "Running", "containerStatuses": [{"restartCount": 3, "state": {"terminated": ended}}]}
    )
    plan = world.settle("chat")
    assert (plan.verdict.course, plan.verdict.reason) == (Course.STALLED, Reason.REPLICA_CRASHING)
    assert "rank0000.engine is cut" in plan.verdict.message
    assert status(world)["phase"] == "Failed"


def test_a_replica_whose_end_no_restart_can_mend_stalls_at_once() -> None:
    world = served()
    world.change("StatefulSet", "chat-0", status={"readyReplicas": 0})
    ended = {"exitCode": 6, "message": '{"ok":false,"code":6,"message":"tokenizer.json cannot be read"}'}
    world.group_pod("chat-0", {"phase": "Running", "containerStatuses": [{"state": {"terminated": ended}}]})
    plan = world.look_at_deployment("chat")
    assert (plan.verdict.course, plan.verdict.reason) == (Course.STALLED, Reason.REPLICA_CRASHING)
    assert "tokenizer.json cannot be read" in plan.verdict.message


def test_a_missing_secret_is_named_and_waited_for() -> None:
    world = a_world()
    world.look_at_deployment("chat")
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "nosuch" not found'}
    world.job_pod(
        the_job(world, "-fetch-"), {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    )
    plan = world.look_at_deployment("chat")
    assert (plan.verdict.course, plan.verdict.reason) == (Course.MOVING, Reason.WAITING_FOR_SECRET)
    assert 'secret "nosuch" not found' in plan.verdict.message


def test_the_port_for_clients_stays_until_the_revision_that_changes_it_serves() -> None:
    world = served()
    world.change("LLMDeployment", "chat", spec={"serving": {"port": 9100}, "buildConfig": {"maxSeqLen": 99999}})
    world.settle("chat")
    assert world.get("Service", "chat")["spec"]["ports"][0]["port"] == 8000
    assert status(world)["url"].endswith(":8000/v1")
    world.change("LLMDeployment", "chat", spec={"buildConfig": {"maxSeqLen": 2048}})
    world.settle("chat")
    assert world.get("Service", "chat")["spec"]["ports"][0]["port"] == 8000, "the new group is not ready yet"
    world.group_becomes_ready("chat-1")
    world.settle("chat")
    assert world.get("Service", "chat")["spec"]["ports"][0]["port"] == 9100


def test_facts_that_refuse_the_spec_stall_before_anything_is_built() -> None:
    world = a_world(buildConfig={"maxSeqLen": 9000})
    world.settle("chat")
    world.job_succeeds(the_job(world, "-fetch-"), smollm2_facts(max_position_embeddings=8192))
    plan = world.settle("chat")
    assert (plan.verdict.course, plan.verdict.reason) == (Course.STALLED, Reason.MODEL_MISMATCH)
    assert "spec.buildConfig.maxSeqLen" in plan.verdict.message
    assert world.names("LLMEngine") == []


@pytest.mark.parametrize("generation", [2, 5])
def test_observed_generation_is_the_generation_that_was_judged(generation: int) -> None:
    """I4."""
    world = a_world()
    obj = world.get("LLMDeployment", "chat")
    obj["metadata"]["generation"] = generation
    world.put(obj)
    world.look_at_deployment("chat")
    assert status(world)["observedGeneration"] == generation
    assert {c["observedGeneration"] for c in status(world)["conditions"]} == {generation}


def test_a_deployment_that_comes_back_uses_the_engine_without_a_build() -> None:
    world = served()
    builds = [job for job in world.names("Job") if job.startswith("build-")]
    for kind, name in [("StatefulSet", "chat-0"), ("LLMDeployment", "chat"), *_all(world, "ControllerRevision")]:
        world.remove(kind, name)
    for job in [name for name in world.names("Job") if "-fetch-" in name]:
        world.remove("Job", job)
    again = a_deployment_object("chat")
    again["metadata"]["uid"] = "another-uid"
    world.put(again)
    world.settle("chat")
    world.job_succeeds(the_job(world, "-fetch-"))
    world.settle("chat")
    assert [job for job in world.names("Job") if job.startswith("build-")] == builds
    assert world.names("StatefulSet") == ["chat-0"]


def _is_complete(world: World, job: str) -> bool:
    return bool(world.get("Job", job).get("status", {}).get("succeeded"))


def _all(world: World, kind: str) -> list[tuple[str, str]]:
    return [(kind, name) for name in world.names(kind)]


def test_a_revision_of_the_statefulset_controller_leads_to_the_deployment_too() -> None:
    """It copies our labels from the pod template, so the watch shows it to us."""
    world = served()
    group = world.get("StatefulSet", "chat-0")["metadata"]
    reference = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "chat-0",
        "uid": group["uid"],
        "controller": True,
    }
    theirs = world.put(
        {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {"name": "chat-0-abc", "ownerReferences": [reference]},
        }
    )
    assert concerned(world.store, theirs) == {Key("LLMDeployment", "default", "chat")}


def test_a_batch_that_nobody_wrote_fits_the_nodes_gpus_and_stays_when_they_change() -> None:
    """Design 4: what is unset is sized to fit. Design 7: what is frozen does not move with the cluster."""

    def batch(world: World) -> int:
        world.settle("chat")
        if not world.names("ControllerRevision"):
            world.job_succeeds(the_job(world, "-fetch-"))
            world.settle("chat")
        (name,) = world.names("ControllerRevision")
        return int(world.get("ControllerRevision", name)["data"]["resolution"]["args"]["maxBatchSize"])

    memory = {"nvidia.com/gpu.product": "L4", "nvidia.com/gpu.memory": "23034"}
    small, large = (a_world(buildConfig={"maxBatchSize": None}) for _ in range(2))
    small.a_node("gpu-a", gpus=8, labels=memory)
    large.a_node("gpu-a", gpus=8, labels={**memory, "nvidia.com/gpu.memory": "81559"})

    fitted = batch(small)
    assert 1 < fitted < batch(large)
    small.a_node("gpu-a", gpus=8, labels={**memory, "nvidia.com/gpu.memory": "81559"})
    assert batch(small) == fitted
