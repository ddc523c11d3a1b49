"""Builds wait for a slot in the order in which they came, and no namespace holds up another one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, an_engine_object, some_defaults
from tests.unit.decide.world import World
from trtllm_operator.api.conditions import Reason
from trtllm_operator.decide.build_slots import Build, BuildSlots, Waiter, standing
from trtllm_operator.decide.plan import Course


def a_build(name: str, namespace: str = "prod") -> Build:
    return Build(namespace=namespace, job=f"build-{name}", engine=name)


def a_waiter(name: str, minute: int = 0, namespace: str = "prod") -> Waiter:
    return Waiter(namespace=namespace, uid=name, job=f"build-{name}", since=NOW + timedelta(minutes=minute))


def test_without_a_limit_everybody_builds() -> None:
    running = tuple(a_build(str(number)) for number in range(50))
    assert standing(BuildSlots(running=running), a_waiter("me")) is None


@pytest.mark.parametrize(
    ("slots", "told"),
    [
        pytest.param(
            BuildSlots(per_namespace=2, running=(a_build("b"), a_build("a")), waiting=(a_waiter("early", -5),)),
            "2nd of 2 in the namespace's queue; building: a, b (2 of 2)",
            id="the namespace is full",
        ),
        pytest.param(
            BuildSlots(per_namespace=2, running=(a_build("a"), a_build("x", "other"), a_build("y", "other"))),
            None,
            id="other namespaces do not count against its own limit",
        ),
        pytest.param(
            BuildSlots(per_cluster=1, running=(a_build("x", "other"),), waiting=(a_waiter("late", 9, "other"),)),
            "1st of 2 in the cluster's queue; 1 of 1 builds run",
            id="the cluster is full, and names of other namespaces are not told",
        ),
        pytest.param(
            BuildSlots(per_namespace=1, waiting=(a_waiter("early", -5),)),
            "2nd of 2 in the namespace's queue; building:  (0 of 1)",
            id="a free slot is for whoever waited longer",
        ),
        pytest.param(
            BuildSlots(
                per_namespace=1, per_cluster=2, running=(a_build("x", "other"),), waiting=(a_waiter("y", -5, "other"),)
            ),
            None,
            id="an elder whose namespace is full lets others pass",
        ),
        pytest.param(
            BuildSlots(per_namespace=1, waiting=(a_waiter("aa"),)),
            "2nd of 2 in the namespace's queue; building:  (0 of 1)",
            id="the UID decides between two of one moment",
        ),
        pytest.param(
            BuildSlots(per_namespace=1, running=(a_build("me"),)), None, id="a sibling has begun the same build"
        ),
        pytest.param(
            BuildSlots(per_namespace=2, running=(a_build("early"),), waiting=(a_waiter("early", -5),)),
            None,
            id="who has begun waits no more, whatever its status still says",
        ),
    ],
)
def test_a_place_in_the_queue(slots: BuildSlots, told: str | None) -> None:
    assert standing(slots, a_waiter("me")) == told


@given(
    st.integers(0, 3),
    st.integers(0, 4),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=8, unique=True),
)
def test_whoever_looks_first_the_limits_hold_and_nobody_waits_for_ever(
    per_namespace: int, per_cluster: int, asked: list[tuple[str, int]]
) -> None:
    waiting = [a_waiter(f"{namespace}{minute}", minute, namespace) for namespace, minute in asked]
    running: list[Build] = []
    while waiting:
        begun = []
        for me in reversed(waiting):
            others = tuple(waiter for waiter in waiting if waiter is not me)
            slots = BuildSlots(
                per_namespace=per_namespace, per_cluster=per_cluster, running=tuple(running), waiting=others
            )
            if standing(slots, me) is None:
                running.append(Build(namespace=me.namespace, job=me.job, engine=me.uid))
                begun.append(me)
        assert not per_cluster or len(running) <= per_cluster
        in_one = max(sum(build.namespace == namespace for build in running) for namespace in "abc")
        assert not per_namespace or in_one <= per_namespace
        assert begun, "somebody always gets on"
        waiting = [waiter for waiter in waiting if waiter not in begun]
        running.clear()


def three_engines(**limits: int) -> World:
    world = World(defaults=some_defaults(**limits))
    for number, name in enumerate(("one", "two", "three")):
        world.put(an_engine_object(name, spec={"buildConfig": {"maxBatchSize": number + 1}}))
        world.look_at_engine(name)
    for job in list(world.names("Job")):
        world.job_succeeds(job)
    return world


def builds(world: World) -> list[str]:
    return [job for job in world.names("Job") if job.startswith("build-")]


def test_an_engine_waits_says_so_and_builds_when_a_build_ends() -> None:
    world = three_engines(builds_per_namespace=1)
    for name in ("two", "one", "three"):
        world.look_at_engine(name)
        world.later(seconds=1)
    (first,) = builds(world)
    plan = world.look_at_engine("three")
    assert (plan.verdict.course, plan.verdict.reason) == (Course.MOVING, Reason.WAITING_FOR_BUILD_SLOT)
    assert plan.verdict.message == "2nd of 2 in the namespace's queue; building: two (1 of 1)"
    assert plan.look_again is None, "the end of a build wakes whoever waits"
    world.job_succeeds(first, bytes=7, seconds={})
    assert world.look_at_engine("three").verdict.reason == Reason.WAITING_FOR_BUILD_SLOT, "one waited longer"
    assert world.look_at_engine("one").verdict.reason == Reason.BUILDING_ENGINE
    assert len(builds(world)) == 2


def test_the_time_since_which_it_waits_is_kept_until_it_builds() -> None:
    world = three_engines(builds_per_namespace=1)
    for name in ("one", "two"):
        world.look_at_engine(name)
    since = world.get("LLMEngine", "two")["status"]["queuedSince"]
    world.later(hours=1)
    world.look_at_engine("two")
    assert world.get("LLMEngine", "two")["status"]["queuedSince"] == since
    world.job_succeeds(builds(world)[0], bytes=7, seconds={})
    world.look_at_engine("two")
    assert "queuedSince" not in world.get("LLMEngine", "two")["status"]


def test_at_rest_nothing_is_written_while_it_waits() -> None:
    """I6."""
    world = three_engines(builds_per_namespace=1)
    for name in ("one", "two", "three", "one", "two", "three"):
        world.look_at_engine(name)
    before = [world.get("LLMEngine", name) for name in ("one", "two", "three")]
    world.later(hours=3)
    for name in ("one", "two", "three"):
        world.look_at_engine(name)
    assert [world.get("LLMEngine", name) for name in ("one", "two", "three")] == before
