"""A corrupt engine is built anew once, while what serves goes on; corrupt again, a person must look."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import a_deployment_spec
from tests.unit.decide.test_deployment import served, the_job
from tests.unit.decide.world import World
from trtllm_engine.contract import ExitCode, Result
from trtllm_operator.api import names
from trtllm_operator.api.conditions import Reason
from trtllm_operator.api.engine import LLMEngine
from trtllm_operator.api.views import GroupView, PodView
from trtllm_operator.cluster.snapshots import concerned
from trtllm_operator.decide.health import health
from trtllm_operator.decide.plan import Course

DAMAGE = "rank0000.engine: its bytes were altered: sha256 is 12ab, its record says 34cd"


def a_pod_finds(world: World, field: str | None = "rank0000.engine", *, restarts: int = 1) -> None:
    """The container of the first group begins, verifies, ends so, and waits for its next try."""
    world.later(minutes=2)
    began = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    world.later(seconds=5)
    said = Result(ok=False, code=ExitCode.CORRUPT_INPUT, field=field, message=DAMAGE)
    ended = {
        "exitCode": int(ExitCode.CORRUPT_INPUT),
        "reason": "Error",
        "message": said.to_json(),
        "startedAt": began,
        "finishedAt": world.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    world.change("StatefulSet", "chat-0", status={"readyReplicas": 0})
    container = {
        "restartCount": restarts,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    world.group_pod("chat-0", {"phase": "Running", "containerStatuses": [container]}, node="gpu-a")


def engine_status(world: World) -> dict[str, Any]:
    (name,) = world.names(LLMEngine.KIND)
    found: dict[str, Any] = world.get(LLMEngine.KIND, name)["status"]
    return found


def look_at_engine(world: World) -> Any:
    (name,) = world.names(LLMEngine.KIND)
    return world.look_at_engine(name)


def finish_build(world: World) -> None:
    """Later than everything that happened before."""
    world.later(seconds=30)
    build = the_job(world, "build-")
    ended = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    world.job_succeeds(build, bytes=7, seconds={"weights": 1.0})
    condition = {"type": "Complete", "status": "True", "lastTransitionTime": ended}
    world.change("Job", build, status={"conditions": [condition]})


def rebuilt() -> World:
    world = served()
    a_pod_finds(world)
    world.settle("chat")
    finish_build(world)
    world.settle("chat")
    return world


def test_what_a_server_found_makes_the_engine_corrupt_and_its_files_are_built_once_more() -> None:
    world = served()
    first = world.get("Job", the_job(world, "build-"))["metadata"]
    a_pod_finds(world)
    plan = look_at_engine(world)
    assert (plan.verdict.course, plan.verdict.reason) == (Course.MOVING, Reason.ENGINE_CORRUPT)
    assert DAMAGE in plan.verdict.message and "pod chat-0-0" in plan.verdict.message
    assert (plan.actions, engine_status(world)["phase"]) == ((), "Corrupt"), "written down before it is acted on"
    world.settle("chat")
    again = world.get("Job", the_job(world, "build-"))["metadata"]
    assert again["uid"] != first["uid"], "I1: the Job of that name was replaced"
    assert again["annotations"][names.REBUILD_ANNOTATION] == "1"
    finish_build(world)
    world.settle("chat")
    assert (engine_status(world)["phase"], engine_status(world)["rebuilds"]) == ("Ready", 1)
    assert world.get("Job", again["name"])["metadata"]["uid"] == again["uid"], "and only once"


def test_nothing_that_serves_is_touched_while_corrupt_files_are_built_anew() -> None:
    world = served(replicas=2)
    before = [world.get("StatefulSet", name)["metadata"]["uid"] for name in ("chat-0", "chat-1")]
    a_pod_finds(world, restarts=7)
    plan = world.settle("chat")
    assert (plan.verdict.course, plan.verdict.reason) == (Course.MOVING, Reason.BUILDING_ENGINE)
    assert world.get("LLMDeployment", "chat")["status"]["readyReplicas"] == 1
    finish_build(world)
    world.later(days=1)
    plan = world.look_at_deployment("chat")
    look_at_engine(world)
    plan = world.look_at_deployment("chat")
    assert plan.verdict.course is Course.MOVING, "restarts while the files were bad are held against nobody"
    assert [world.get("StatefulSet", name)["metadata"]["uid"] for name in ("chat-0", "chat-1")] == before


def test_what_was_found_before_the_rebuild_was_done_is_old() -> None:
    world = served()
    a_pod_finds(world)
    world.settle("chat")
    a_pod_finds(world)
    finish_build(world)
    world.settle("chat")
    assert engine_status(world)["phase"] == "Ready"


def test_corrupt_again_it_stalls_names_the_file_and_the_claim_and_stays_so() -> None:
    world = rebuilt()
    a_pod_finds(world)
    plan = look_at_engine(world)
    key = engine_status(world)["key"]
    assert (plan.verdict.course, plan.verdict.reason) == (Course.STALLED, Reason.ENGINE_CORRUPT)
    for words in (DAMAGE, names.engine_claim(key), "kubectl delete llmengine -n default"):
        assert words in plan.verdict.message
    world.remove("Pod", "chat-0-0")
    for kind in ("nothing more happened", "its Job is gone"):
        world.settle("chat")
        assert engine_status(world)["phase"] == "Failed", kind
        assert engine_status(world)["message"] == plan.verdict.message, kind
        if kind == "nothing more happened":
            world.remove("Job", the_job(world, "build-"))
    assert not [job for job in world.names("Job") if job.startswith("build-")]


def test_a_deployment_of_an_engine_that_is_corrupt_again_stalls_with_its_reason() -> None:
    world = rebuilt()
    a_pod_finds(world)
    world.settle("chat")
    ready = next(c for c in world.get("LLMDeployment", "chat")["status"]["conditions"] if c["type"] == "Ready")
    assert ready["reason"] == Reason.ENGINE_CORRUPT and DAMAGE in ready["message"]
    assert world.names("StatefulSet") == ["chat-0"], "its pods stay"


@pytest.mark.parametrize("lost", ["its Job is gone", "its status was lost"])
def test_the_count_of_rebuilds_survives(lost: str) -> None:
    world = rebuilt()
    if lost == "its Job is gone":
        world.remove("Job", the_job(world, "build-"))
    else:
        (name,) = world.names(LLMEngine.KIND)
        world.change(LLMEngine.KIND, name, status=None)
    world.settle("chat")
    a_pod_finds(world)
    assert look_at_engine(world).verdict.course is Course.STALLED


@pytest.mark.parametrize("field", ["tokenizer.json", None])
def test_a_file_that_no_build_can_mend_is_not_built_anew(field: str | None) -> None:
    world = served()
    a_pod_finds(world, field)
    world.settle("chat")
    assert engine_status(world)["phase"] == "Ready"
    ready = next(c for c in world.get("LLMDeployment", "chat")["status"]["conditions"] if c["type"] == "Ready")
    assert ready["reason"] == Reason.REPLICA_CRASHING


def test_a_pod_that_found_a_corrupt_file_is_news_for_its_engine() -> None:
    world = served()
    (engine,) = world.names(LLMEngine.KIND)
    assert engine not in {key.name for key in concerned(world.store, world.get("Pod", "chat-0-0"))}
    a_pod_finds(world)
    assert engine in {key.name for key in concerned(world.store, world.get("Pod", "chat-0-0"))}


def test_the_time_to_get_ready_runs_from_the_rebuild_and_the_message_says_so() -> None:
    world = served()
    world.change("StatefulSet", "chat-0", status={"readyReplicas": 0})
    world.group_is_placed("chat-0")
    group = GroupView.of(world.get("StatefulSet", "chat-0"))
    pods, spec = (
        [PodView.of(world.get("Pod", "chat-0-0"))],
        a_deployment_spec(strategy={"progressDeadlineSeconds": 600}),
    )
    rebuilt = world.now + timedelta(hours=2)
    assert health([group], pods, spec, rebuilt).failure is not None, "without one it is long over"
    assert health([group], pods, spec, rebuilt, rebuilt).deadline == rebuilt + timedelta(seconds=600)
    late = health([group], pods, spec, rebuilt + timedelta(seconds=600), rebuilt).failure
    assert late is not None and "600 s after its engine was built anew, at 16:03Z" in late.message
