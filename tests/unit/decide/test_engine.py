"""Decisions for an LLMEngine: one build per key and namespace, the first cause, and retention."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HUB, an_engine_object, some_defaults
from tests.unit.decide.world import World
from trtllm_engine.contract import ExitCode, Step, Toolchain
from trtllm_operator.api import names
from trtllm_operator.api.conditions import Reason
from trtllm_operator.decide.plan import Course, Delete


def a_world(*engines: str, **spec: Any) -> World:
    world = World()
    for name in engines or ("one",):
        world.put(an_engine_object(name, spec=spec))
    return world


def look(world: World, *engines: str) -> None:
    for _ in range(3):
        for name in engines:
            world.look_at_engine(name)


def inspected(*engines: str, **spec: Any) -> World:
    world = a_world(*engines, **spec)
    look(world, *engines or ("one",))
    for job in list(world.names("Job")):
        world.job_succeeds(job)
    look(world, *engines or ("one",))
    return world


def builds(world: World) -> list[str]:
    return [job for job in world.names("Job") if job.startswith("build-")]


def status(world: World, name: str = "one") -> dict[str, Any]:
    found: dict[str, Any] = world.get("LLMEngine", name)["status"]
    return found


def test_the_key_names_the_claim_and_the_build_job() -> None:
    world = inspected()
    key = status(world)["key"]
    assert builds(world) == [f"build-{key[:16]}"]
    assert names.engine_claim(key) in world.names("PersistentVolumeClaim")


@pytest.mark.parametrize(
    "newer",
    [
        {"engine_image": "registry.example/engine:newer"},
        {"toolchain": Toolchain.TENSORRT},
        {"hub_endpoint": "https://mirror.example"},
    ],
    ids=lambda changes: next(iter(changes)),
)
@pytest.mark.parametrize("model", [{}, HUB], ids=["on a volume", "of the hub"])
def test_an_engine_that_a_user_made_is_not_built_again_for_other_defaults(
    model: dict[str, Any], newer: dict[str, Any]
) -> None:
    """A user's engine names no image and need not name a toolchain: what its key was made with stays."""
    world = inspected(toolchain=None, target=None, dtype="float32", **model)
    world.job_succeeds(builds(world)[0], bytes=7, seconds={"build": 2.0})
    look(world, "one")
    before, key = world.names("Job"), status(world)["key"]
    world.defaults = some_defaults(**newer)
    look(world, "one")
    assert world.names("Job") == before
    assert (status(world)["key"], status(world)["phase"]) == (key, "Ready")


def test_two_engines_with_one_key_make_one_build_and_one_claim() -> None:
    """I1."""
    world = inspected("one", "two")
    assert len(builds(world)) == 1
    assert len([c for c in world.names("PersistentVolumeClaim") if c.startswith("engine-")]) == 1
    world.job_succeeds(builds(world)[0], bytes=7, seconds={"build": 2.0})
    look(world, "one", "two")
    assert status(world, "one")["phase"] == status(world, "two")["phase"] == "Ready"
    assert status(world, "two")["reference"] == "one" and "reference" not in status(world, "one")


def test_a_build_job_of_a_younger_sibling_serves_the_elder_too() -> None:
    """Both ask at once, and the younger one's Job is there first: nobody waits for anybody."""
    world = a_world("one", "two")
    look(world, "one", "two")
    for job in list(world.names("Job")):
        world.job_succeeds(job)
    world.look_at_engine("two")
    world.look_at_engine("one")
    world.job_succeeds(builds(world)[0], bytes=7, seconds={})
    look(world, "one", "two")
    assert len(builds(world)) == 1
    assert status(world, "one")["phase"] == status(world, "two")["phase"] == "Ready"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ExitCode.BAD_REQUEST, Reason.INVALID_SPEC),
        (ExitCode.UNSUPPORTED, Reason.UNSUPPORTED_BY_TOOLCHAIN),
        (ExitCode.MODEL_UNAVAILABLE, Reason.MODEL_NOT_FOUND),
        (ExitCode.NO_SPACE, Reason.NO_SPACE),
        (ExitCode.CORRUPT_INPUT, Reason.BUILD_FAILED),
        (ExitCode.BUILDER_ERROR, Reason.BUILD_FAILED),
    ],
)
def test_a_hopeless_exit_code_stalls_at_the_pods_end_with_field_message_and_first_log_line(
    code: ExitCode, reason: Reason
) -> None:
    world = inspected()
    (build,) = builds(world)
    world.pod_fails(
        build, code, step=Step.WEIGHTS, field="model.safetensors", message="it is cut", log="line 1 of the log"
    )
    plan = world.look_at_engine("one")
    assert (plan.verdict.course, plan.verdict.reason) == (Course.STALLED, reason)
    for words in ("step weights", "model.safetensors", "it is cut", "line 1 of the log", f"job/{build}"):
        assert words in plan.verdict.message
    assert builds(world) == [build], "nothing is retried that cannot succeed"


def test_an_exit_that_may_heal_is_left_to_the_job() -> None:
    world = inspected()
    world.pod_fails(builds(world)[0], ExitCode.TRY_AGAIN, message="stale file handle")
    assert world.look_at_engine("one").verdict.course is Course.MOVING


def test_a_killed_builder_is_told_apart_as_out_of_memory() -> None:
    world = inspected()
    world.pod_fails(builds(world)[0], 137)
    verdict = world.look_at_engine("one").verdict
    assert (verdict.course, verdict.reason) == (Course.STALLED, Reason.BUILD_OUT_OF_MEMORY)
    assert "it had 2Gi; set engine.resources.limits.memory to 3Gi or more" in verdict.message


@pytest.mark.parametrize(
    ("limit", "proposed"), [("2Gi", "3Gi"), ("500Mi", "1Gi"), ("96Gi", "144Gi"), ("10G", "14Gi"), ("3Gi", "5Gi")]
)
def test_the_next_memory_size_is_proposed_as_a_number(limit: str, proposed: str) -> None:
    world = inspected(resources={"limits": {"memory": limit}})
    world.pod_fails(builds(world)[0], 137)
    assert (
        f"it had {limit}; set engine.resources.limits.memory to {proposed}"
        in world.look_at_engine("one").verdict.message
    )


def test_a_fetch_that_was_killed_or_late_is_not_told_to_change_the_build() -> None:
    world = a_world()
    look(world, "one")
    (job,) = world.names("Job")
    world.pod_fails(job, 137)
    verdict = world.look_at_engine("one").verdict
    assert verdict.reason == Reason.FETCH_FAILED
    assert "kubectl get limitrange -n default" in verdict.message
    assert "engine.resources" not in verdict.message


def test_a_forbidden_model_is_told_apart_from_a_missing_one() -> None:
    world = a_world(model="org/name", modelVolume=None)
    look(world, "one")
    world.pod_fails(world.names("Job")[0], ExitCode.MODEL_UNAVAILABLE, field="hubTokenSecretRef", message="gated")
    assert world.look_at_engine("one").verdict.reason == Reason.MODEL_FORBIDDEN


def test_a_failed_fetch_says_how_to_try_again_and_does_when_its_job_is_deleted() -> None:
    world = a_world()
    look(world, "one")
    (job,) = world.names("Job")
    world.pod_fails(job, ExitCode.MODEL_UNAVAILABLE, field="model", message="/models/x does not exist")
    assert f"kubectl delete job -n default {job}" in world.look_at_engine("one").verdict.message
    world.remove("Job", job)
    assert world.look_at_engine("one").verdict.course is Course.MOVING
    assert world.names("Job") == [job]


def test_a_failed_build_stands_when_its_job_is_gone() -> None:
    world = inspected()
    (build,) = builds(world)
    world.pod_fails(build, ExitCode.BUILDER_ERROR, message="no kernel")
    look(world, "one")
    world.remove("Job", build)
    plan = world.look_at_engine("one")
    assert (plan.verdict.course, plan.verdict.reason) == (Course.STALLED, Reason.BUILD_FAILED)
    assert builds(world) == []


def test_a_ready_engine_stays_ready_when_its_job_is_gone() -> None:
    world = inspected()
    world.job_succeeds(builds(world)[0], bytes=7, seconds={"build": 2.0})
    look(world, "one")
    before = status(world)
    world.remove("Job", builds(world)[0])
    look(world, "one")
    assert builds(world) == []
    assert status(world) == before, "bytes, seconds and times were kept"


def test_a_fetch_whose_result_was_lost_is_asked_again() -> None:
    world = a_world()
    look(world, "one")
    (job,) = world.names("Job")
    first = world.get("Job", job)["metadata"]["uid"]
    world.change(
        "Job",
        job,
        status={"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-02T14:04:00Z"}]},
    )
    look(world, "one")
    assert world.get("Job", job)["metadata"]["uid"] != first


def test_an_engine_of_ours_that_nobody_needs_goes_with_its_files_after_its_retention() -> None:
    world = inspected(retention="1h")
    world.job_succeeds(builds(world)[0], bytes=7, seconds={})
    world.change("LLMEngine", "one", metadata={"labels": {names.MANAGED_BY: names.MANAGER}})
    look(world, "one")
    plan = world.look_at_engine("one")
    assert plan.look_again is not None
    world.later(minutes=59)
    look(world, "one")
    assert world.names("LLMEngine") == ["one"]
    world.later(minutes=2)
    world.look_at_engine("one")
    assert world.names("LLMEngine") == []
    assert not [c for c in world.names("PersistentVolumeClaim") if c.startswith("engine-")]


def test_an_engine_that_a_user_made_is_never_deleted() -> None:
    world = inspected(retention="Delete")
    world.job_succeeds(builds(world)[0], bytes=7, seconds={})
    look(world, "one")
    world.later(days=365)
    look(world, "one")
    assert world.names("LLMEngine") == ["one"]


def test_a_build_whose_node_is_lost_goes_on_elsewhere() -> None:
    """The Job waits for the end of its pod before it makes another, and nobody on the node can confirm it."""
    world = inspected()
    world.a_node("cpu-a")
    (build,) = [job for job in world.names("Job") if job.startswith("build-")]
    world.job_runs(build, 40, node="cpu-a")
    world.a_node("cpu-a", ready=False)
    world.later(seconds=59)
    assert not [a for a in world.look_at_engine("one").actions if isinstance(a, Delete)]
    world.later(seconds=1)
    (lost,) = [a for a in world.look_at_engine("one").actions if isinstance(a, Delete)]
    assert (lost.kind, lost.force, lost.name) == ("Pod", True, f"{build}-0-abcde")


@pytest.mark.parametrize(("asked", "told"), [("fast", "storage class fast (ReadWriteOnce)"), (None, "a default one")])
def test_a_claim_that_no_storage_class_serves_is_named_with_what_it_asks_for(asked: str | None, told: str) -> None:
    world = inspected(storage={"storageClassName": asked})
    (build,) = builds(world)
    words = "pod has unbound immediate PersistentVolumeClaims. preemption: not helpful."
    stuck = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    world.job_pod(build, {"phase": "Pending", "conditions": [stuck]})
    verdict = world.look_at_engine("one").verdict
    assert (verdict.course, verdict.reason) == (Course.MOVING, Reason.WAITING_FOR_VOLUME)
    claim = names.engine_claim(status(world)["key"])
    for words in (claim, told, "kubectl get storageclass", "engine.storage.storageClassName"):
        assert words in verdict.message
    world.change("PersistentVolumeClaim", claim, status={"phase": "Bound"})
    assert claim not in world.look_at_engine("one").verdict.message, "another volume is missing"
