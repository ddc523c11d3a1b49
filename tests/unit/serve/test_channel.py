"""Ranks that decide together: whoever is gone is noticed, and nobody who does not belong gets in."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.serve import channel
from trtllm_engine.serve.channel import Channel
from trtllm_engine.serve.leader import Leader, Stage
from trtllm_engine.serve.listener import open_port
from trtllm_engine.serve.runtime import Row

PATIENCE = 30
"""Seconds for what should come at once."""


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


class Rank:
    """Another rank's end of a connection, seen from a test: what it heard, and why the connection ended."""

    def __init__(self, connection: socket.socket) -> None:
        self._heard: queue.Queue[Any] = queue.Queue()
        self.channel = Channel(connection, self._heard.put, lambda reason: self._heard.put(reason))
        self.channel.start()

    def next(self) -> Any:
        return self._heard.get(timeout=PATIENCE)


class Group:
    """A leader, and what it told the process that it is in."""

    def __init__(self, world_size: int) -> None:
        self._listener = open_port(0)
        self.lost: queue.Queue[Failure] = queue.Queue()
        self.leaving: queue.Queue[int] = queue.Queue()
        self.leader = Leader(self._listener, world_size, "key", self.lost.put, self.leaving.put)

    def connect(self, rank: int, key: str = "key") -> Rank:
        other = Rank(socket.create_connection(("127.0.0.1", self._listener.getsockname()[1])))
        other.channel.send({"join": rank, "engine": key})
        return other

    def joined(self) -> None:
        self.leader.wait(Stage.JOINED, lambda detail: None)


@pytest.fixture
def pair() -> Iterator[Group]:
    """A leader of two ranks."""
    group = Group(2)
    yield group
    group.leader.close(done=True)


def test_a_message_arrives_as_it_was_sent() -> None:
    left, right = connected()
    one, other = Rank(left), Rank(right)
    one.channel.send({"step": [[0, 5, [1, 2]]]})
    assert other.next() == {"step": [[0, 5, [1, 2]]]}


def test_a_process_that_ends_is_noticed_by_its_connection() -> None:
    left, right = connected()
    other = Rank(right)
    left.close()
    assert other.next() == "it closed the connection"


def test_a_node_that_vanished_is_noticed_by_its_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "SILENCE_SECONDS", 0.1)
    left, right = connected()
    assert Rank(right).next() == "nothing was heard of it for 0.1 s"
    left.close()


def test_idle_ranks_beat_so_that_neither_counts_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "BEAT_SECONDS", 0.01)
    left, right = connected()
    beats = left.makefile("rb")
    Rank(right)
    assert [beats.readline() for _ in range(3)] == [b"{}\n"] * 3


def test_the_group_waits_for_every_rank_and_says_for_whom() -> None:
    group = Group(3)
    said: list[str] = []

    def join_when_asked_for(detail: str) -> None:
        if detail not in said:
            said.append(detail)
            group.connect(3 - len(said))

    group.leader.wait(Stage.JOINED, join_when_asked_for)
    assert said == ["waiting for rank 1, 2 of 3 to join", "waiting for rank 1 of 3 to join"]
    group.leader.close(done=True)


def test_a_step_reaches_the_others_and_the_end_too(pair: Group) -> None:
    rank = pair.connect(1)
    pair.joined()
    pair.leader.step([Row(slot=2, position=7, tokens=(5, 6))])
    pair.leader.close(done=True)
    assert rank.next() == {"step": [[2, 7, [5, 6]]]}
    assert rank.next() == {"stop": True}
    assert pair.lost.empty(), "an end that was meant is no loss"


def test_a_leader_that_fails_does_not_say_that_all_is_well(pair: Group) -> None:
    rank = pair.connect(1)
    pair.joined()
    pair.leader.close(done=False)
    assert rank.next() == "it closed the connection"


@pytest.mark.parametrize(
    ("rank", "key", "reason"),
    [
        (1, "other", "it serves engine other, this group serves key"),
        (2, "key", "rank 2 is none of this group's 2"),
        (0, "key", "rank 0 is none of this group's 2"),
    ],
)
def test_who_does_not_belong_is_refused_with_the_reason(pair: Group, rank: int, key: str, reason: str) -> None:
    assert pair.connect(rank, key).next() == {"refused": reason}


def test_no_rank_is_there_twice(pair: Group) -> None:
    pair.connect(1)
    pair.joined()
    assert pair.connect(1).next() == {"refused": "rank 1 is there already"}


def test_a_rank_that_is_lost_breaks_the_group(pair: Group) -> None:
    rank = pair.connect(1)
    pair.joined()
    rank.channel.close()
    failure = pair.lost.get(timeout=PATIENCE)
    assert (failure.code, failure.message[:17]) == (ExitCode.TRY_AGAIN, "rank 1 was lost: ")
    with pytest.raises(Failure):
        pair.leader.wait(Stage.LOADED, lambda detail: None)


def test_a_rank_that_failed_gives_the_group_its_reason(pair: Group) -> None:
    rank = pair.connect(1)
    rank.channel.send({"failed": {"code": 6, "message": "rank0001.engine: cut", "field": "rank0001.engine"}})
    rank.channel.close()
    failure = pair.lost.get(timeout=PATIENCE)
    assert (failure.code, failure.message) == (ExitCode.CORRUPT_INPUT, "rank 1: rank0001.engine: cut")
    assert failure.field == "rank0001.engine"
    assert pair.lost.empty(), "the loss that follows from it is not another one"


def test_a_rank_that_was_told_to_stop_says_so(pair: Group) -> None:
    pair.connect(1).channel.send({"leaving": True})
    assert pair.leaving.get(timeout=PATIENCE) == 1
