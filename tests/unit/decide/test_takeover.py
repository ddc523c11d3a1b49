"""How a changed spec takes over: by the GPUs that there are, within its time, and back by itself when it fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW, a_deployment_object
from tests.unit.decide.test_deployment import condition, served, status
from tests.unit.decide.world import World
from trtllm_operator.api import names
from trtllm_operator.api.conditions import Reason
from trtllm_operator.decide.plan import Course, Delete

CHANGED = {"serving": {"drainSeconds": 1}}
"""A new revision with the same engine."""


def changed(*, gpus: int = 8, others: int = 0, **spec: Any) -> World:
    """A deployment that serves on one node, and was just changed; `others` hold some of the node's GPUs."""
    world = served(**spec)
    world.a_node("gpu-a", gpus=gpus)
    if others:
        world.others.append(a_pod("training", others))
    change(world)
    return world


def change(world: World) -> None:
    """The look that freezes the new revision is behind us: the next one rolls it out."""
    world.change("LLMDeployment", "chat", spec=CHANGED)
    world.look_at_deployment("chat")


def a_pod(name: str, gpus: int, node: str = "gpu-a") -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "kind": "PlacedPod",
        "metadata": {"name": name, "namespace": "prod"},
        "spec": {"nodeName": node, "containers": [{"resources": resources}]},
    }


def reason(world: World) -> str:
    return str(condition(world, "Ready")["reason"])


def message(world: World) -> str:
    return str(condition(world, "Ready")["message"])


# --- GPUs -------------------------------------------------------------------------------------------------------------


def test_with_a_free_gpu_the_old_group_stays_until_its_successor_is_ready() -> None:
    world = changed(gpus=2)
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]


def test_on_a_full_cluster_it_goes_one_by_one_and_says_who_holds_the_gpus() -> None:
    world = changed(gpus=4, others=2, replicas=2)
    world.look_at_deployment("chat")
    assert world.names("StatefulSet") == ["chat-0"], "the highest ordinal made room"
    assert "one by one" in message(world)
    assert "0 of 4 are free" in message(world) and "prod/training (2)" in message(world)
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]
    world.group_becomes_ready("chat-1")
    world.settle("chat")
    world.group_becomes_ready("chat-0")
    world.settle("chat")
    assert reason(world) == Reason.AS_EXPECTED


def test_where_nodes_cannot_be_seen_it_goes_one_by_one_and_says_so() -> None:
    world = served()
    world.remove_node("gpu-a")
    change(world)
    world.look_at_deployment("chat")
    assert world.names("StatefulSet") == []
    assert "the operator sees no nodes" in message(world)


def test_a_deployment_on_the_cpu_needs_no_gpu_for_its_surge() -> None:
    world = served(serving={"device": "cpu"})
    world.remove_node("gpu-a")
    change(world)
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]


def a_waiting_group(world: World) -> None:
    """Another deployment's: it exists, and its pod has no node yet."""
    world.put(a_deployment_object("other"))
    template = world.get("StatefulSet", "chat-0")["spec"]["template"]
    owner = {"kind": "LLMDeployment", "name": "other", "uid": "uid-of-other", "controller": True}
    world.put(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "other-0", "ownerReferences": [owner]},
            "spec": {"replicas": 1, "template": template},
        }
    )


def test_what_another_deployment_is_about_to_take_is_not_free() -> None:
    world = changed(gpus=2)
    a_waiting_group(world)
    world.look_at_deployment("chat")
    assert world.names("StatefulSet") == ["other-0"], "chat-0 made room, because the second GPU is other's"


def test_who_waits_for_a_gpu_costs_a_rollout_no_second_group() -> None:
    """What made room is not there for others only: the next old group stays until the new one is ready."""
    world = changed(gpus=2, replicas=2)
    a_waiting_group(world)
    old = world.get("StatefulSet", "chat-0")["metadata"]["uid"]
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1", "other-0"]
    assert world.get("StatefulSet", "chat-0")["metadata"]["uid"] == old
    assert status(world)["readyReplicas"] == 1
    world.group_becomes_ready("chat-1")
    world.settle("chat")
    world.group_becomes_ready("chat-0")
    world.settle("chat")
    assert status(world)["currentRevision"] == status(world)["targetRevision"]


def test_gpus_of_another_product_make_no_room() -> None:
    """The old group serves where the new one cannot run: it stays, and one new group waits in the open."""
    world = served()
    selector = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100"}}
    world.change("LLMDeployment", "chat", spec={"scheduling": selector})
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]
    world.group_finds_no_node("chat-1")
    world.later(minutes=5)
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]
    assert reason(world) == Reason.WAITING_FOR_GPUS
    assert "0 of 0 are free on 0 node(s)" in message(world)


def test_a_pod_that_has_just_found_no_node_costs_no_group_its_life() -> None:
    world = changed(gpus=2)
    world.settle("chat")
    world.group_finds_no_node("chat-1")
    plan = world.look_at_deployment("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]
    assert plan.look_again is not None and (plan.look_again - world.now).total_seconds() == 10
    world.later(seconds=10)
    world.look_at_deployment("chat")
    assert world.names("StatefulSet") == ["chat-1"]


def test_a_gated_pod_waits_for_a_quota_by_the_name_of_its_gate() -> None:
    world = changed(gpus=2)
    world.settle("chat")
    pod = world.group_pod("chat-1", {"phase": "Pending"})
    world.put(pod | {"spec": pod["spec"] | {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}})
    world.look_at_deployment("chat")
    assert reason(world) == Reason.WAITING_FOR_QUOTA
    assert "kueue.x-k8s.io/admission" in message(world)


def test_a_surge_that_a_gate_holds_back_makes_room_instead() -> None:
    world = changed(gpus=2)
    world.settle("chat")
    held = world.group_pod("chat-1", {"phase": "Pending"})
    world.put(held | {"spec": held["spec"] | {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}})
    world.look_at_deployment("chat")
    assert world.names("StatefulSet") == ["chat-1"]


def test_groups_of_several_pods_start_one_after_another() -> None:
    """Where nobody can count what is free, each could hold what the other one lacks."""
    world = served(replicas=2)
    world.remove_node("gpu-a")
    for group in world.names("StatefulSet"):
        world.remove("StatefulSet", group)
    (record,) = world.names("ControllerRevision")
    world.change("ControllerRevision", record, data={"resolution": {"pods": 2}})
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0"]
    world.group_is_placed("chat-0")
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]


def test_a_change_of_policy_replaces_nothing() -> None:
    world = served()
    uid = world.get("StatefulSet", "chat-0")["metadata"]["uid"]
    policy = {"type": "RollingUpdate", "maxSurge": "50%", "progressDeadlineSeconds": 90, "revisionHistoryLimit": 3}
    world.change("LLMDeployment", "chat", spec={"strategy": policy})
    assert world.settle("chat").verdict.course is Course.SETTLED
    assert world.get("StatefulSet", "chat-0")["metadata"]["uid"] == uid
    assert len(world.names("ControllerRevision")) == 1


def test_recreate_removes_all_before_it_makes_any() -> None:
    world = changed(replicas=2, strategy={"type": "Recreate"})
    world.look_at_deployment("chat")
    assert world.names("StatefulSet") == []
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]


def test_rolling_update_on_a_full_cluster_waits_as_the_user_said_and_shows_the_demand() -> None:
    world = changed(gpus=1, strategy={"type": "RollingUpdate"})
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"], "one group waits, so that an autoscaler sees it"
    world.group_finds_no_node("chat-1")
    world.later(hours=5)
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]
    assert reason(world) == Reason.WAITING_FOR_GPUS
    assert "strategy.maxUnavailable: 1, would let one make room" in message(world)


# --- failing and coming back ------------------------------------------------------------------------------------------


def crash(world: World, group: str, restarts: int = 3) -> None:
    ended = {"exitCode": 1, "message": "no such option"}
    crashed = {"phase": "Running", "containerStatuses": [{"restartCount": restarts, "state": {"terminated": ended}}]}
    world.group_pod(group, crashed, node="gpu-a")


def test_a_revision_that_keeps_crashing_is_rolled_back_and_the_old_one_serves() -> None:
    world = changed()
    old = status(world)["currentRevision"]
    world.settle("chat")
    crash(world, "chat-1")
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0"]
    assert (reason(world), condition(world, "Stalled")["reason"]) == (Reason.ROLLED_BACK, Reason.ROLLED_BACK)
    assert "no such option" in message(world) and f"revision {old} serves" in message(world)
    assert condition(world, "Available")["status"] == "True"
    assert status(world)["currentRevision"] == old
    assert status(world)["failedRevision"]["reason"] == Reason.REPLICA_CRASHING


def test_a_failure_is_written_down_before_anything_is_done_about_it() -> None:
    """Or an operator that dies in between would try the revision again."""
    world = changed()
    world.settle("chat")
    crash(world, "chat-1")
    plan = world.look_at_deployment("chat")
    assert not [action for action in plan.actions if isinstance(action, Delete)]
    assert status(world)["failedRevision"]["message"].startswith("pod chat-1-0 ended")
    plan = world.look_at_deployment("chat")
    assert [action.name for action in plan.actions if isinstance(action, Delete)] == ["chat-1"]


def test_a_revision_that_was_only_ever_rolled_out_to_no_replicas_is_not_the_last_good_one() -> None:
    world = served()
    good = status(world)["currentRevision"]
    world.change("LLMDeployment", "chat", spec={"replicas": 0})
    world.settle("chat")
    change(world)
    assert world.settle("chat").verdict.course is Course.SETTLED
    world.change("LLMDeployment", "chat", spec={"replicas": 1})
    world.settle("chat")
    crash(world, "chat-0")
    world.settle("chat")
    assert reason(world) == Reason.ROLLED_BACK
    assert status(world)["currentRevision"] == good
    (group,) = world.names("StatefulSet")
    world.group_becomes_ready(group)
    world.settle("chat")
    assert f"revision {good} serves (1 of 1 replicas are ready)" in message(world)


def test_what_was_rolled_back_is_not_tried_again_until_the_spec_changes() -> None:
    world = changed()
    world.settle("chat")
    crash(world, "chat-1")
    world.settle("chat")
    for spec in ({"replicas": 2}, {"suspend": True}, {"suspend": False}, {"strategy": {"restartBudget": 9}}):
        world.change("LLMDeployment", "chat", spec=spec)
        world.later(hours=1)
        world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1"], "scaled, at the old revision"
    assert reason(world) == Reason.ROLLED_BACK
    world.group_becomes_ready("chat-0")
    world.group_becomes_ready("chat-1")
    world.change("LLMDeployment", "chat", spec={"serving": {"drainSeconds": 2}})
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-0", "chat-1", "chat-2"]
    assert reason(world) == Reason.ROLLING_OUT
    assert "failedRevision" not in status(world)


@pytest.mark.parametrize(
    ("asked", "tried"), [("2026-01-02T15:00:00Z", True), ("2026-01-02T14:00:00Z", False), ("now", False)]
)
def test_a_revision_that_was_given_up_is_tried_once_more_when_somebody_asks(asked: str, tried: bool) -> None:
    world = changed()
    world.settle("chat")
    crash(world, "chat-1")
    world.settle("chat")
    world.change("LLMDeployment", "chat", metadata={"annotations": {names.RETRY_ANNOTATION: asked}})
    world.settle("chat")
    assert (world.names("StatefulSet") == ["chat-0", "chat-1"]) is tried
    assert reason(world) == (Reason.ROLLING_OUT if tried else Reason.ROLLED_BACK)


def test_the_old_spec_put_back_after_a_rollback_is_ready_without_a_new_pod() -> None:
    world = changed()
    world.settle("chat")
    crash(world, "chat-1")
    world.settle("chat")
    uid = world.get("StatefulSet", "chat-0")["metadata"]["uid"]
    world.change("LLMDeployment", "chat", spec={"serving": None})
    assert world.settle("chat").verdict.course is Course.SETTLED
    assert world.get("StatefulSet", "chat-0")["metadata"]["uid"] == uid


def test_groups_that_had_turned_go_back_too() -> None:
    world = changed(replicas=2, gpus=3)
    old = status(world)["currentRevision"]
    world.settle("chat")
    world.group_becomes_ready("chat-2")
    world.look_at_deployment("chat")
    world.settle("chat")
    crash(world, "chat-1")
    for _ in range(3):
        world.settle("chat")
        for group in world.names("StatefulSet"):
            world.group_becomes_ready(group)
    world.settle("chat")
    labels = [world.get("StatefulSet", name)["metadata"]["labels"] for name in world.names("StatefulSet")]
    assert [value for label in labels for name, value in label.items() if name.endswith("/revision")] == [old, old]
    assert "2 of 2 replicas are ready" in message(world)


def test_a_revision_that_is_not_ready_in_time_is_rolled_back_and_its_time_is_looked_for() -> None:
    world = changed(strategy={"progressDeadlineSeconds": 600})
    world.settle("chat")
    world.group_is_placed("chat-1")
    plan = world.look_at_deployment("chat")
    assert plan.look_again is not None and (plan.look_again - world.now).total_seconds() == 600
    world.later(seconds=599)
    world.settle("chat")
    assert reason(world) == Reason.ROLLING_OUT
    world.later(seconds=1)
    world.settle("chat")
    assert reason(world) == Reason.ROLLED_BACK
    assert "was not ready 600 s after its pods had a node, at 14:03Z" in message(world)
    assert world.names("StatefulSet") == ["chat-0"]


def test_the_time_for_loading_is_part_of_the_default_deadline() -> None:
    world = changed(serving={"startupSeconds": 3000})
    world.settle("chat")
    world.group_is_placed("chat-1")
    plan = world.look_at_deployment("chat")
    assert plan.look_again is not None and (plan.look_again - NOW).total_seconds() == 3600


def test_waiting_for_gpus_is_never_held_against_a_revision() -> None:
    world = changed(strategy={"type": "RollingUpdate", "progressDeadlineSeconds": 60}, gpus=1)
    world.settle("chat")
    world.group_finds_no_node("chat-1")
    world.later(days=3)
    world.settle("chat")
    assert reason(world) == Reason.WAITING_FOR_GPUS


def test_without_a_revision_to_go_back_to_the_pods_stay_and_it_recovers_by_itself() -> None:
    world = served()
    world.change("StatefulSet", "chat-0", status={"readyReplicas": 0})
    crash(world, "chat-0")
    plan = world.settle("chat")
    assert (plan.verdict.course, plan.verdict.reason) == (Course.STALLED, Reason.REPLICA_CRASHING)
    assert world.names("StatefulSet") == ["chat-0"]
    world.group_becomes_ready("chat-0")
    assert world.settle("chat").verdict.course is Course.SETTLED


@pytest.mark.parametrize(("budget", "expected"), [(5, Reason.ROLLING_OUT), (4, Reason.ROLLED_BACK)])
def test_the_restart_budget_is_the_users(budget: int, expected: Reason) -> None:
    world = changed(strategy={"restartBudget": budget})
    world.settle("chat")
    crash(world, "chat-1", restarts=4)
    world.settle("chat")
    assert reason(world) == expected


# --- paused -----------------------------------------------------------------------------------------------------------


def test_paused_starts_nothing_and_keeps_what_serves() -> None:
    world = served()
    world.change("LLMDeployment", "chat", spec={"strategy": {"paused": True}, "dtype": "bfloat16", "replicas": 2})
    world.settle("chat")
    assert reason(world) == Reason.PAUSED
    assert world.names("StatefulSet") == ["chat-0", "chat-1"]
    assert len(world.names("LLMEngine")) == 1, "nothing is built"
    assert condition(world, "Available")["status"] == "True"


def test_paused_in_the_middle_leaves_both_revisions_as_they_are_and_goes_on_afterwards() -> None:
    world = changed(replicas=2, gpus=3)
    world.settle("chat")
    world.change("LLMDeployment", "chat", spec={"strategy": {"paused": True}})
    world.settle("chat")
    uids = {name: world.get("StatefulSet", name)["metadata"]["uid"] for name in world.names("StatefulSet")}
    world.later(hours=9)
    world.settle("chat")
    assert {name: world.get("StatefulSet", name)["metadata"]["uid"] for name in world.names("StatefulSet")} == uids
    world.change("LLMDeployment", "chat", spec={"strategy": {"paused": False}})
    for _ in range(5):
        world.settle("chat")
        for group in world.names("StatefulSet"):
            world.group_becomes_ready(group)
    assert reason(world) == Reason.AS_EXPECTED


def test_paused_with_nothing_to_roll_out_is_ready() -> None:
    world = served()
    world.change("LLMDeployment", "chat", spec={"strategy": {"paused": True}})
    assert world.settle("chat").verdict.course is Course.SETTLED


# --- what is cleared away ---------------------------------------------------------------------------------------------


def test_old_revisions_beyond_the_limit_go_and_none_that_is_in_use() -> None:
    world = served(strategy={"revisionHistoryLimit": 1})
    for drain in (1, 2, 3):
        world.change("LLMDeployment", "chat", spec={"serving": {"drainSeconds": drain}})
        world.later(minutes=1)
        for _ in range(3):
            world.settle("chat")
            for group in world.names("StatefulSet"):
                world.group_becomes_ready(group)
        world.settle("chat")
    kept = {name.rsplit("-", 1)[1] for name in world.names("ControllerRevision")}
    assert len(kept) == 2
    assert status(world)["currentRevision"] in kept


def test_pods_on_a_lost_node_are_deleted_without_waiting_for_it() -> None:
    world = served()
    world.a_node("gpu-a", gpus=8, ready=False)
    plan = world.look_at_deployment("chat")
    assert plan.look_again is not None and (plan.look_again - world.now).total_seconds() == 60
    world.later(seconds=60)
    (lost,) = [a for a in world.look_at_deployment("chat").actions if isinstance(a, Delete)]
    assert (lost.kind, lost.name, lost.force) == ("Pod", "chat-0-0", True)
    assert "node gpu-a has not been ready since 14:03Z" in lost.reason
    assert world.names("StatefulSet") == ["chat-0"], "its controller makes the pod anew"


def test_a_node_that_comes_back_in_time_costs_nothing() -> None:
    world = served()
    world.a_node("gpu-a", gpus=8, ready=False)
    world.later(seconds=59)
    world.a_node("gpu-a", gpus=8)
    world.later(hours=1)
    assert not [a for a in world.look_at_deployment("chat").actions if isinstance(a, Delete)]
