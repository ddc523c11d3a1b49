"""A rank that computes what rank 0 says: `python -m trtllm_engine.serve.follower ORDER` is one beside another rank.

It ends with its group: with exit code DONE when rank 0 says so, with TRY_AGAIN as soon as rank 0 is gone. The rank that
is its pod's own process also answers the probes.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import torch

from trtllm_engine.contract import ExitCode, ServeRequest
from trtllm_engine.failure import Failure
from trtllm_engine.serve.channel import Channel, Message
from trtllm_engine.serve.cpus import usable_cpus
from trtllm_engine.serve.health import Health, Phase
from trtllm_engine.serve.http_edge import log_line
from trtllm_engine.serve.placement import Placement
from trtllm_engine.serve.runtime import Row
from trtllm_engine.serve.siblings import Siblings, read_order

RETRY_SECONDS: Final = 0.5
CONNECT_SECONDS: Final = 5.0


class Follower:
    """One rank's connection to rank 0. What rank 0 says is read by a thread of its own, also while this one loads."""

    def __init__(self, rank: int, engine_key: str, health: Health) -> None:
        self._rank = rank
        self._engine_key = engine_key
        self._health = health
        self._channel: Channel | None = None
        self._address: queue.Queue[str] = queue.Queue()
        self._steps: queue.Queue[Sequence[Row]] = queue.Queue()
        self._leaving = threading.Event()

    def join(self, placement: Placement) -> None:
        """Reach rank 0, however long it takes to be there: its pod may still be pulled or loaded."""
        self._health.detail = f"waiting for rank 0 at {placement.leader_host}"
        while self._channel is None:
            try:
                connection = socket.create_connection((placement.leader_host, placement.leader_port), CONNECT_SECONDS)
            except OSError:
                if self._leaving.wait(RETRY_SECONDS):
                    self._end(ExitCode.DONE, "stopped before the group was there")
            else:
                self._channel = Channel(connection, self._hear, self._lost)
        self._channel.start()
        self._channel.send({"join": self._rank, "engine": self._engine_key})
        if self._leaving.is_set():
            self.leave()

    def report(self, percent: float, detail: str) -> None:
        self._health.percent, self._health.detail = percent, detail

    def meeting_place(self) -> str:
        """Say that this rank is loaded, and wait for where the ranks meet: all must be loaded."""
        self._say({"loaded": True})
        self._health.detail = "waiting for the other ranks"
        return self._address.get()

    def failed(self, failure: Failure) -> None:
        self._say({"failed": {"code": int(failure.code), "message": failure.message, "field": failure.field}})

    def leave(self) -> None:
        """This pod was told to stop: rank 0 ends the group when the requests that run are answered."""
        self._leaving.set()
        self._say({"leaving": True})

    def steps(self) -> Iterator[Sequence[Row]]:
        """What to compute, for as long as the group lives."""
        while True:
            yield self._steps.get()

    def _say(self, message: Message) -> None:
        if self._channel:
            self._channel.send(message)

    def _hear(self, message: Message) -> None:
        match message:
            case {"step": rows}:
                self._steps.put([Row(slot, position, tokens) for slot, position, tokens in rows])
            case {"meet": address}:
                self._address.put(address)
            case {"ready": ready}:
                self._health.phase = Phase.FOLLOWING if ready else Phase.DRAINING
            case {"stop": True}:
                self._end(ExitCode.DONE, "the group ended")
            case {"refused": reason}:
                self._end(ExitCode.TRY_AGAIN, f"rank 0 does not take rank {self._rank}: {reason}")

    def _lost(self, reason: str) -> None:
        self._end(ExitCode.TRY_AGAIN, f"rank 0 was lost: {reason}; the group starts again")

    def _end(self, code: ExitCode, message: str) -> None:
        """At once: the thread that computes may wait for a rank that is no more."""
        log_line("stopped", {"rank": self._rank, "message": message})
        sys.stdout.flush()
        os._exit(int(code))


def follow(request: ServeRequest, store: Path, placement: Placement, rank: int, follower: Follower) -> None:
    """Join, load, and compute until the process ends. Raises `Failure`: what loading raises, told to rank 0 before."""
    from trtllm_engine.serve.rank_loader import load_rank, open_engine

    torch.set_num_threads(max(1, usable_cpus() // placement.ranks_per_pod))
    follower.join(placement)
    try:
        engine = open_engine(request, store)
        runtime = load_rank(engine, request.device, placement, rank, follower.meeting_place, follower.report)
        for rows in follower.steps():
            runtime.follow(rows)
    except Failure as failure:
        follower.failed(failure)
        raise
    except Exception as error:
        broken = Failure(ExitCode.TRY_AGAIN, f"a step failed: {type(error).__name__}: {error}")
        follower.failed(broken)
        raise broken from error


def serve_pod(request: ServeRequest, store: Path, placement: Placement) -> None:
    """The first rank of a pod that is not the group's first: it starts the pod's others and answers its probes."""
    asyncio.run(_answer_probes(request, store, placement))


async def _answer_probes(request: ServeRequest, store: Path, placement: Placement) -> None:
    from trtllm_engine.serve.app import Service
    from trtllm_engine.serve.listener import listening

    service = Service(request.model_name)
    follower = Follower(placement.ranks.start, request.engine_key, service.health)
    _leave_on_signals(follower)
    siblings = Siblings(request, store, placement)
    try:
        async with listening(service, request.port):
            await asyncio.to_thread(follow, request, store, placement, placement.ranks.start, follower)
    except Failure as failure:
        log_line("failed", {"rank": placement.ranks.start, "message": failure.message})
        raise
    finally:
        siblings.wait()


def _leave_on_signals(follower: Follower) -> None:
    def on_signal(number: int, frame: FrameType | None) -> None:
        # In a thread: the interrupted one may be sending, and hold the lock.
        threading.Thread(target=follower.leave, name="leave", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


def main(arguments: Sequence[str]) -> int:
    request, store, placement, rank = read_order(arguments)
    follower = Follower(rank, request.engine_key, Health())
    _leave_on_signals(follower)
    try:
        follow(request, store, placement, rank, follower)
    except Failure as failure:
        log_line("failed", {"rank": rank, "message": failure.message})
        return int(failure.code)
    return int(ExitCode.DONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
