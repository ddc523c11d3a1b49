"""Events: each transition told once, and never a storm."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from tests.unit.reconcile.builders import an_object
from trtllm_operator.cluster.client import Client
from trtllm_operator.cluster.errors import Unreachable
from trtllm_operator.cluster.events import BURST, NOTE_LIMIT, QUIET, Events

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


class FakeClient:
    """Stands in for the client; keeps what was created."""

    def __init__(self) -> None:
        self.created: list[Mapping[str, Any]] = []
        self.away = False

    async def create_event(self, event: Mapping[str, Any]) -> None:
        if self.away:
            raise Unreachable("no answer")
        self.created.append(event)


class Scene:
    """Events, what they wrote, and a clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.client = FakeClient()
        self.events = Events(
            cast(Client, self.client), instance="operator-0", clock=lambda: self.seconds, now=lambda: NOW
        )

    def emit(self, reason: str = "Ready", message: str = "serves", name: str = "llama") -> None:
        asyncio.run(self.events.emit(an_object(name, 5), "Normal", reason, message))

    def storm(self, count: int, words: str) -> None:
        async def emit_all() -> None:
            for number in range(count):
                await self.events.emit(an_object(), "Normal", "Storm", f"{words} {number}")

        asyncio.run(emit_all())

    @property
    def reasons(self) -> list[str]:
        return [event["reason"] for event in self.client.created]


def test_an_event_says_about_what_and_by_whom() -> None:
    scene = Scene()
    scene.emit("BuildFailed", "rank 1 ran out of memory")
    (event,) = scene.client.created
    assert event["regarding"]["name"] == "llama"
    assert event["regarding"]["uid"] == "llama"
    assert event["metadata"]["namespace"] == "default"
    assert (event["type"], event["reason"], event["note"]) == ("Normal", "BuildFailed", "rank 1 ran out of memory")
    assert event["eventTime"] == "2026-01-02T03:04:05.000678Z"
    assert event["reportingInstance"] == "operator-0"


def test_the_same_words_are_told_once_in_ten_minutes() -> None:
    scene = Scene()
    scene.emit()
    scene.seconds += QUIET - 1
    scene.emit()
    assert scene.reasons == ["Ready"]
    scene.seconds += 1
    scene.emit()
    assert scene.reasons == ["Ready", "Ready"]


def test_other_words_or_another_object_are_news() -> None:
    scene = Scene()
    scene.emit("Building", "41%")
    scene.emit("Building", "42%")
    scene.emit("Ready", "42%")
    scene.emit("Ready", "42%", name="mixtral")
    assert len(scene.client.created) == 4


def test_a_storm_is_cut_and_calm_restores_the_budget() -> None:
    scene = Scene()
    scene.storm(1_000, "first")
    assert len(scene.client.created) == BURST
    scene.seconds += 1
    scene.storm(1_000, "later")
    assert len(scene.client.created) == BURST + 10


def test_a_long_message_is_cut_to_what_the_api_server_accepts() -> None:
    scene = Scene()
    scene.emit(message="ü" * 2_000)
    note = scene.client.created[0]["note"]
    assert len(note.encode()) <= NOTE_LIMIT
    assert note.endswith("ü...")


def test_an_event_that_cannot_be_written_is_no_failure() -> None:
    scene = Scene()
    scene.client.away = True
    scene.emit()
    assert scene.reasons == []
