"""What an engine leaves behind goes when nobody needs it for long enough, and never while somebody does (I2)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW
from tests.unit.decide.test_deployment import served, the_job
from tests.unit.decide.world import World
from trtllm_operator.api import names
from trtllm_operator.api.engine import LLMEngine
from trtllm_operator.cluster.snapshots import claim_snapshot, concerned
from trtllm_operator.decide.plan import Apply, Delete
from trtllm_operator.decide.retention import ClaimPlan, decide_claim
from trtllm_operator.reconcile.store import Key

WEEK = 7 * 24


def the_claim(world: World) -> str:
    (name,) = [name for name in world.names("PersistentVolumeClaim") if name.startswith("engine-")]
    return name


def look(world: World) -> ClaimPlan:
    """One reconcile of the claim."""
    name = the_claim(world)
    plan = decide_claim(
        claim_snapshot(world.store, world.get("PersistentVolumeClaim", name), world.defaults), world.now
    )
    for action in plan.actions:
        if isinstance(action, Delete):
            world.remove(action.kind, action.name)
        elif isinstance(action, Apply):
            world.change("PersistentVolumeClaim", name, metadata=action.manifest["metadata"])
    return plan


def deleted(**engine: Any) -> World:
    """A deployment that served was deleted, and then its engine by hand: its files are left."""
    world = served(engine=engine)
    world.remove("StatefulSet", "chat-0")
    world.remove("LLMDeployment", "chat")
    world.remove(LLMEngine.KIND, world.names(LLMEngine.KIND)[0])
    return world


def test_a_claim_that_nobody_needs_goes_after_the_retention() -> None:
    world = deleted()
    plan = look(world)
    assert plan.look_again == NOW.replace(day=NOW.day + 7)
    written = world.get("PersistentVolumeClaim", the_claim(world))
    assert written["metadata"]["annotations"][names.UNREFERENCED_ANNOTATION] == "2026-01-02T14:03:00Z"
    world.later(hours=WEEK - 1)
    assert look(world).actions == (), "written once"
    world.later(hours=1)
    (gone,) = look(world).actions
    assert isinstance(gone, Delete) and gone.uid == written["metadata"]["uid"]


@pytest.mark.parametrize(("retention", "hours"), [("1h", 1), ("Delete", 0), ("Keep", None)])
def test_the_retention_of_the_engine_that_is_gone_counts(retention: str, hours: int | None) -> None:
    world = deleted(retention=retention)
    look(world)
    world.later(hours=10**4 if hours is None else hours)
    assert [type(action) for action in look(world).actions] == ([] if hours is None else [Delete])


def test_a_claim_with_an_engine_is_its_engines_business() -> None:
    world = served()
    world.later(hours=10 * WEEK)
    assert look(world) == ClaimPlan()


def test_a_pod_or_a_deployment_that_needs_it_keeps_it_without_an_engine() -> None:
    world = served()
    world.remove(LLMEngine.KIND, world.names(LLMEngine.KIND)[0])
    world.later(hours=10 * WEEK)
    plan = look(world)
    assert plan.actions == () and plan.look_again is not None, "no event tells when they are gone"
    world.remove("LLMDeployment", "chat")
    assert look(world).actions == (), "its pod still mounts it"


def test_an_engine_whose_key_is_not_known_yet_may_be_the_one() -> None:
    world = deleted(retention="Delete")
    look(world)
    world.put({"apiVersion": names.API_VERSION, "kind": LLMEngine.KIND, "metadata": {"name": "new"}, "spec": {}})
    assert not [action for action in look(world).actions if isinstance(action, Delete)]
    world.change(LLMEngine.KIND, "new", status={"phase": "Failed"})
    look(world)
    (gone,) = look(world).actions
    assert isinstance(gone, Delete), "one that is refused gets none"


def test_who_needs_it_again_begins_the_time_anew() -> None:
    world = deleted()
    look(world)
    world.put({"apiVersion": names.API_VERSION, "kind": LLMEngine.KIND, "metadata": {"name": "new"}, "spec": {}})
    look(world)
    world.remove(LLMEngine.KIND, "new")
    world.later(hours=10 * WEEK)
    (marked,) = look(world).actions
    assert isinstance(marked, Apply)


def test_the_end_of_an_engine_is_news_for_its_claim() -> None:
    world = served()
    engine = world.get(LLMEngine.KIND, world.names(LLMEngine.KIND)[0])
    claim = Key("PersistentVolumeClaim", "default", the_claim(world))
    assert claim not in concerned(world.store, engine)
    world.remove(LLMEngine.KIND, engine["metadata"]["name"])
    assert claim in concerned(world.store, engine)


def test_an_engine_that_was_deleted_while_in_use_comes_back_and_finds_its_files() -> None:
    """The engine is asked for again; its build finds every rank published, and no pod is touched."""
    world = served()
    build, claim = the_job(world, "build-"), world.get("PersistentVolumeClaim", the_claim(world))
    group = world.get("StatefulSet", "chat-0")["metadata"]["uid"]
    world.remove(LLMEngine.KIND, world.names(LLMEngine.KIND)[0])
    world.remove("Job", build)
    world.settle("chat")
    world.job_succeeds(the_job(world, "build-"), bytes=7, seconds={})
    world.settle("chat")
    assert world.get("LLMDeployment", "chat")["status"]["phase"] == "Ready"
    assert world.get("PersistentVolumeClaim", the_claim(world)) == claim
    assert world.get("StatefulSet", "chat-0")["metadata"]["uid"] == group
