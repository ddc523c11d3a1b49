"""Random lives of a deployment: whatever happens, in whatever order, the invariants hold after every look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_deployment_object
from tests.unit.decide.world import World
from trtllm_engine.contract import ExitCode
from trtllm_operator.api.names import REVISION_LABEL
from trtllm_operator.api.views import GroupView
from trtllm_operator.decide.deployment import DeploymentPlan
from trtllm_operator.decide.plan import Delete
from trtllm_operator.decide.strategy import SURGE

Event = Callable[[World], None]


def _spec(**changes: Any) -> Event:
    return lambda world: void(world.change("LLMDeployment", "chat", spec=changes))


def void(_: object) -> None:
    """An event returns nothing."""


def _jobs_succeed(world: World) -> None:
    for job in world.names("Job"):
        if not world.get("Job", job).get("status"):
            if job.startswith("build-"):
                world.job_succeeds(job, bytes=1, seconds={})
            else:
                world.job_succeeds(job)


def _builds_fail(world: World) -> None:
    for job in world.names("Job"):
        if job.startswith("build-") and not world.get("Job", job).get("status"):
            world.pod_fails(job, ExitCode.BUILDER_ERROR, message="no kernel")


def _groups_start(world: World) -> None:
    for group in world.names("StatefulSet"):
        world.group_becomes_ready(group)


def _a_group_dies(world: World) -> None:
    for group in world.names("StatefulSet")[:1]:
        world.change("StatefulSet", group, status={"readyReplicas": 0})


def _groups_are_placed(world: World) -> None:
    for group in world.names("StatefulSet"):
        if not world.get("StatefulSet", group).get("status"):
            world.group_is_placed(group)


def _a_group_crashes(world: World) -> None:
    for group in world.names("StatefulSet")[-1:]:
        world.change("StatefulSet", group, status={"readyReplicas": 0})
        world.group_pod(group, {"phase": "Running", "containerStatuses": [{"restartCount": 9}]}, node="gpu-a")


EVENTS: Final[dict[str, Event]] = {
    "jobs succeed": _jobs_succeed,
    "builds fail": _builds_fail,
    "groups start": _groups_start,
    "a group dies": _a_group_dies,
    "time passes": lambda world: world.later(minutes=7),
    "groups are placed": _groups_are_placed,
    "a group crashes": _a_group_crashes,
    "the node is lost": lambda world: world.a_node("gpu-a", gpus=8, ready=False),
    "the node is back": lambda world: world.a_node("gpu-a", gpus=8),
    "an hour passes": lambda world: world.later(hours=1),
    "pause": _spec(strategy={"paused": True}),
    "go on": _spec(strategy={"paused": False}),
    "recreate": _spec(strategy={"type": "Recreate"}),
    "one replica": _spec(replicas=1),
    "three replicas": _spec(replicas=3),
    "zero replicas": _spec(replicas=0),
    "another engine": _spec(dtype="bfloat16"),
    "the first engine": _spec(dtype="float32"),
    "another server": _spec(serving={"drainSeconds": 3}),
    "an invalid spec": _spec(model="/etc/passwd"),
    "a valid spec": _spec(model="/models/SmolLM2-135M-Instruct"),
    "suspend": _spec(suspend=True),
    "resume": _spec(suspend=False),
}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(sorted(EVENTS)), min_size=4, max_size=16))
def test_i2_i3_i4_i11_hold_after_every_look_of_every_life(events: list[str]) -> None:
    world = World()
    world.a_node("gpu-a", gpus=8)
    world.put(a_deployment_object("chat"))
    for event in ["jobs succeed", "jobs succeed", "groups start", *events]:
        EVENTS[event](world)
        for _ in range(2):
            before = [GroupView.of(obj) for obj in world.store.list("StatefulSet")]
            i2_only_a_rollout_step_deletes(world, before, world.look_at_deployment("chat"))
            for engine in world.names("LLMEngine"):
                world.look_at_engine(engine)
            i3_ready_means_updated_and_available(world)
            i4_the_generation_that_was_judged(world)
            i11_no_group_mixes_revisions(world)
    i8_when_nothing_is_in_the_way_every_life_ends(world)


def i8_when_nothing_is_in_the_way_every_life_ends(world: World) -> None:
    """Ready, or Stalled for a person to look, with whatever is ready serving."""
    for event in ("the node is back", "go on", "resume"):
        EVENTS[event](world)
    for _ in range(8):
        world.settle("chat")
        _jobs_succeed(world)
        _groups_start(world)
    world.settle("chat")
    obj = world.get("LLMDeployment", "chat")
    if _condition(obj, "Ready")["status"] != "True":
        assert _condition(obj, "Stalled")["status"] == "True", _condition(obj, "Ready")
    assert obj["status"]["readyReplicas"] == len(world.names("StatefulSet"))


def i2_only_a_rollout_step_deletes(world: World, groups: list[GroupView], plan: DeploymentPlan) -> None:
    """Claims never; a group that serves only when it is spare, makes room for its successor, or nobody wants it."""
    kinds = {action.kind for action in plan.actions if isinstance(action, Delete)}
    assert kinds <= {"StatefulSet", "Pod", "ControllerRevision"}
    deleted = {a.name for a in plan.actions if isinstance(a, Delete) and a.kind == "StatefulSet"}
    serving = [group for group in groups if group.is_ready]
    if world.get("LLMDeployment", "chat")["spec"].get("strategy", {}).get("type") == "Recreate":
        return
    left = [group for group in serving if group.meta.name not in deleted]
    assert len(serving) == len(left) or len(left) >= min(plan.wanted, len(serving)), (plan.verdict, deleted)


def i3_ready_means_updated_and_available(world: World) -> None:
    obj = world.get("LLMDeployment", "chat")
    if _condition(obj, "Ready")["status"] != "True":
        return
    wanted = 0 if obj["spec"].get("suspend") else obj["spec"].get("replicas", 1)
    groups = [GroupView.of(child) for child in world.store.list("StatefulSet")]
    assert len(groups) == wanted
    assert all(group.is_ready and group.revision == obj["status"]["targetRevision"] for group in groups)


def i4_the_generation_that_was_judged(world: World) -> None:
    obj = world.get("LLMDeployment", "chat")
    assert obj["status"]["observedGeneration"] == obj["metadata"]["generation"]


def i11_no_group_mixes_revisions(world: World) -> None:
    for group in world.store.list("StatefulSet"):
        revision = group["metadata"]["labels"][REVISION_LABEL]
        assert group["spec"]["selector"]["matchLabels"][REVISION_LABEL] == revision
        assert group["spec"]["template"]["metadata"]["labels"][REVISION_LABEL] == revision
    wanted = world.get("LLMDeployment", "chat")["spec"].get("replicas", 1)
    assert len(world.names("StatefulSet")) <= max(wanted, 3) + SURGE


def _condition(obj: dict[str, Any], type: str) -> dict[str, Any]:
    return next(c for c in obj["status"]["conditions"] if c["type"] == type)
