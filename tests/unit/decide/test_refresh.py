"""What was frozen stays as it is, whatever the operator would resolve today, until somebody asks to resolve it anew."""

from __future__ import annotations

from typing import Any

from tests.builders import some_defaults
from tests.unit.decide.test_deployment import served, status
from tests.unit.decide.world import World
from trtllm_operator.api.names import REFRESH_ANNOTATION

REFRESHED = "2026-01-02T15:00:00Z"


def upgraded() -> World:
    """A deployment that serves, and an operator that has other images by now."""
    world = served()
    world.settle("chat")
    world.defaults = some_defaults(engine_image="registry.example/engine:newer")
    return world


def image(world: World, group: str) -> str:
    template: dict[str, Any] = world.get("StatefulSet", group)["spec"]["template"]["spec"]
    return str(template["containers"][0]["image"])


def test_other_defaults_alone_change_nothing() -> None:
    world = upgraded()
    before = {kind: world.names(kind) for kind in ("Job", "LLMEngine", "StatefulSet", "ControllerRevision")}
    was = image(world, "chat-0")
    world.settle("chat")
    assert {kind: world.names(kind) for kind in before} == before
    assert image(world, "chat-0") == was


def test_a_refresh_resolves_the_same_spec_anew_and_the_old_revision_serves_meanwhile() -> None:
    world = upgraded()
    old, jobs = status(world)["currentRevision"], set(world.names("Job"))
    world.change("LLMDeployment", "chat", metadata={"annotations": {REFRESH_ANNOTATION: REFRESHED}})
    world.settle("chat")
    (fetch,) = set(world.names("Job")) - jobs
    assert "-fetch-" in fetch, "the other image may have other toolchains"
    world.job_succeeds(fetch)
    world.settle("chat")

    target = status(world)["targetRevision"]
    assert target != old and status(world)["currentRevision"] == old
    assert image(world, "chat-1") == "registry.example/engine:newer"
    assert "chat-0" in world.names("StatefulSet"), "the old one serves until its successor does"
    world.group_becomes_ready("chat-1")
    world.settle("chat")
    assert world.names("StatefulSet") == ["chat-1"]
    assert status(world)["currentRevision"] == target


def test_a_refresh_that_was_done_is_not_done_again() -> None:
    world = upgraded()
    world.change("LLMDeployment", "chat", metadata={"annotations": {REFRESH_ANNOTATION: REFRESHED}})
    world.settle("chat")
    (fetch,) = [name for name in world.names("Job") if "-fetch-" in name and not world.get("Job", name).get("status")]
    world.job_succeeds(fetch)
    world.settle("chat")
    world.group_becomes_ready("chat-1")
    world.settle("chat")
    world.defaults = some_defaults(engine_image="registry.example/engine:newest")
    before = {kind: world.names(kind) for kind in ("Job", "StatefulSet", "ControllerRevision")}
    world.settle("chat")
    assert {kind: world.names(kind) for kind in before} == before
