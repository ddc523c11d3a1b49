"""Rank 0's side of a group: who is there, how far they are, and what all compute next."""

from __future__ import annotations

import enum
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.serve.channel import Channel, Message
from trtllm_engine.serve.runtime import Row

POLL_SECONDS: Final = 0.2


class Stage(enum.IntEnum):
    """How far a follower is."""

    JOINED = 1
    LOADED = 2


class Leader:
    """Accepts the other ranks on `listener`, and speaks to all of them at once.

    `lost` is told, by another thread, when a rank that had joined is gone or has failed; `leaving`, when one was told
    to stop and so all should.
    """

    def __init__(
        self,
        listener: socket.socket,
        world_size: int,
        engine_key: str,
        lost: Callable[[Failure], None],
        leaving: Callable[[int], None],
    ) -> None:
        self._listener = listener
        self._others = range(1, world_size)
        self._engine_key = engine_key
        self._lost = lost
        self._leaving = leaving
        self._changed = threading.Condition()
        self._channels: dict[int, Channel] = {}
        self._stages: dict[int, Stage] = {}
        self._failure: Failure | None = None
        self._closed = False
        threading.Thread(target=self._accept, name="group", daemon=True).start()

    def wait(self, stage: Stage, report: Callable[[str], None]) -> None:
        """Return when all ranks are so far. Raises the `Failure` of one that failed, and what `report` raises."""
        word = "join" if stage is Stage.JOINED else "load"
        while missing := self._missing(stage):
            report(f"waiting for rank {', '.join(map(str, missing))} of {len(self._others) + 1} to {word}")
            with self._changed:
                self._changed.wait(POLL_SECONDS)

    def meet(self, address: str) -> None:
        """Tell all where the ranks meet to compute."""
        self._tell({"meet": address})

    def announce(self, ready: bool) -> None:
        """Whether the group answers: a follower's pod is ready only as long as it does."""
        self._tell({"ready": ready})

    def step(self, rows: Sequence[Row]) -> None:
        """All compute these rows now."""
        self._tell({"step": [[row.slot, row.position, list(row.tokens)] for row in rows]})

    def close(self, *, done: bool) -> None:
        """All end: `done` as they should, else as ranks whose leader is gone."""
        if done:
            self._tell({"stop": True})
        with self._changed:
            self._closed = True
            channels = list(self._channels.values())
        self._listener.close()
        for channel in channels:
            channel.close()

    def _tell(self, message: Message) -> None:
        for channel in list(self._channels.values()):
            channel.send(message)

    def _missing(self, stage: Stage) -> list[int]:
        with self._changed:
            if self._failure:
                raise self._failure
            return [rank for rank in self._others if self._stages.get(rank, 0) < stage]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        """The first message says who it is; until then it is nobody, and its loss concerns nobody."""
        joined: list[int] = []

        def receive(message: Message) -> None:
            if joined:
                self._hear(joined[0], message)
            elif (refusal := self._refusal(message)) is not None:
                channel.send({"refused": refusal})
                channel.close()
            else:
                joined.append(message["join"])
                with self._changed:
                    self._channels[joined[0]] = channel
                    self._advance(joined[0], Stage.JOINED)

        def lost(reason: str) -> None:
            if joined:
                rank = joined[0]
                self._fail(Failure(ExitCode.TRY_AGAIN, f"rank {rank} was lost: {reason}; the group starts again"))

        channel = Channel(connection, receive, lost)
        channel.start()

    def _refusal(self, message: Message) -> str | None:
        rank, key = message.get("join"), message.get("engine")
        if key != self._engine_key:
            return f"it serves engine {key}, this group serves {self._engine_key}"
        if rank not in self._others:
            return f"rank {rank} is none of this group's {len(self._others) + 1}"
        if rank in self._channels:
            return f"rank {rank} is there already"
        return None

    def _hear(self, rank: int, message: Message) -> None:
        if message.get("loaded"):
            with self._changed:
                self._advance(rank, Stage.LOADED)
        if message.get("leaving"):
            self._leaving(rank)
        if failed := message.get("failed"):
            text = f"rank {rank}: {failed['message']}"
            self._fail(Failure(ExitCode(failed["code"]), text, field=failed.get("field")))

    def _advance(self, rank: int, stage: Stage) -> None:
        self._stages[rank] = stage
        self._changed.notify_all()

    def _fail(self, failure: Failure) -> None:
        """The first one counts: the others follow from it."""
        with self._changed:
            if self._failure or self._closed:
                return
            self._failure = failure
            self._changed.notify_all()
        self._lost(failure)
