"""Rank 0 together with the other ranks of its model."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable
from pathlib import Path

from trtllm_engine.contract import ServeRequest
from trtllm_engine.failure import Failure
from trtllm_engine.serve.group_runtime import GroupRuntime
from trtllm_engine.serve.leader import Leader, Stage
from trtllm_engine.serve.listener import open_port
from trtllm_engine.serve.load import Loaded, Report
from trtllm_engine.serve.placement import Placement
from trtllm_engine.serve.siblings import Siblings


class Group:
    """Waits for the other ranks, those of its own pod started here, and ends them; they end it if one of them ends."""

    def __init__(
        self,
        request: ServeRequest,
        store: Path,
        placement: Placement,
        lost: Callable[[Failure], None],
        leaving: Callable[[int], None],
    ) -> None:
        listener = open_port(placement.leader_port)
        self._request = request
        self._store = store
        self._placement = dataclasses.replace(placement, leader_port=listener.getsockname()[1])
        self._leader = Leader(listener, placement.world_size, request.engine_key, lost, leaving)
        self._siblings = Siblings(request, store, self._placement)

    def load(self, report: Report) -> Loaded:
        """Load rank 0's part while the others load theirs. Raises `Failure`, also that of another rank."""
        from trtllm_engine.serve.torch_loader import load_engine

        self._leader.wait(Stage.JOINED, lambda detail: report(0.0, detail))

        def meet() -> str:
            self._leader.wait(Stage.LOADED, lambda detail: report(99.0, detail))
            address = f"tcp://{self._placement.leader_host}:{_free_port()}"
            self._leader.meet(address)
            return address

        own = load_engine(self._request, self._store, report, self._placement, meet)
        return dataclasses.replace(own, runtime=GroupRuntime(own.runtime, self._leader, self._placement.world_size))

    def announce(self, ready: bool) -> None:
        """Whether the group answers, for the probes of its other pods."""
        self._leader.announce(ready)

    def close(self, *, done: bool) -> None:
        """End all ranks: `done` as they should, else to be started again."""
        self._leader.close(done=done)
        self._siblings.wait()


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
    return port
