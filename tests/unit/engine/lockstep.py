"""A double of ranks in processes of their own: threads of one process that exchange tensors in memory."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from trtllm_engine.contract import Mapping
from trtllm_engine.network.rank import Rank

PATIENCE = 60.0
"""Seconds after which a rank that waits for another gives up: only a broken test comes that far."""

Result = TypeVar("Result")


class Lockstep:
    """The ranks of one mapping; each gets its `LockstepCollectives`."""

    def __init__(self, mapping: Mapping) -> None:
        self.ranks = [Rank(mapping=mapping, index=index) for index in range(mapping.world_size)]
        self._boxes: defaultdict[tuple[int, int], queue.Queue[Tensor]] = defaultdict(queue.Queue)
        self._parts: dict[int, Tensor] = {}
        self._barriers = [threading.Barrier(mapping.tp, timeout=PATIENCE) for _ in range(mapping.pp)]
        # What is asked for the first time by two threads at once would be made twice.
        for source in self.ranks:
            for target in self.ranks:
                self._boxes[source.index, target.index]

    def collectives(self, rank: Rank) -> LockstepCollectives:
        return LockstepCollectives(self, rank)

    def run(self, *work: Callable[[], Result]) -> list[Result]:
        """Each rank's work in a thread of its own; an error of one ends the waiting of all."""

        def guarded(task: Callable[[], Result]) -> Result:
            try:
                return task()
            except BaseException:
                for barrier in self._barriers:
                    barrier.abort()
                raise

        with ThreadPoolExecutor(len(work)) as pool:
            futures = [pool.submit(guarded, task) for task in work]
            return [future.result() for future in futures]

    def exchange(self, rank: Rank, x: Tensor) -> list[Tensor]:
        """What all ranks of the tensor group gave, in their order."""
        barrier = self._barriers[rank.stage]
        self._parts[rank.index] = x
        barrier.wait()
        parts = [self._parts[index] for index in rank.tensor_group]
        barrier.wait()
        return parts

    def box(self, source: int, target: int) -> queue.Queue[Tensor]:
        return self._boxes[source, target]


class LockstepCollectives:
    """`Collectives` of one rank."""

    def __init__(self, lockstep: Lockstep, rank: Rank) -> None:
        self._lockstep = lockstep
        self._rank = rank

    def all_reduce(self, x: Tensor) -> Tensor:
        return torch.stack(self._lockstep.exchange(self._rank, x)).sum(dim=0)

    def all_gather(self, x: Tensor) -> Tensor:
        return torch.cat(self._lockstep.exchange(self._rank, x), dim=-1)

    def send(self, x: Tensor, to: int) -> None:
        self._lockstep.box(self._rank.index, to).put(x)

    def receive(self, shape: Sequence[int], dtype: torch.dtype, source: int) -> Tensor:
        x = self._lockstep.box(source, self._rank.index).get(timeout=PATIENCE)
        assert x.dtype == dtype
        assert all(size in (-1, found) for size, found in zip(shape, x.shape, strict=True))
        return x

    def broadcast(self, numbers: Sequence[int]) -> list[int]:
        raise NotImplementedError("the decoder makes no use of it")
