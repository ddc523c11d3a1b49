"""What the ranks of a model say to each other while they compute."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol

import torch
from torch import Tensor, distributed

from trtllm_engine.network.rank import Rank

TIMEOUT: Final = timedelta(minutes=5)
"""How long a rank waits for the others: they may still be loading. A rank that died is noticed at once on the CPU."""


class Collectives(Protocol):
    """Every call is made by all ranks that it concerns, in the same order; a dead or silent rank raises."""

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over the tensor group."""

    def all_gather(self, x: Tensor) -> Tensor:
        """The tensor group's parts, side by side in the last dimension."""

    def send(self, x: Tensor, to: int) -> None:
        """Give a tensor to another rank, which receives it."""

    def receive(self, shape: Sequence[int], dtype: torch.dtype, source: int) -> Tensor:
        """What `source` sends."""

    def broadcast(self, numbers: Sequence[int]) -> list[int]:
        """Rank 0's numbers on every rank; what the others pass is ignored."""


class Alone:
    """`Collectives` of a model that is not split: there is nobody else."""

    def all_reduce(self, x: Tensor) -> Tensor:
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        return x

    def send(self, x: Tensor, to: int) -> None:
        raise AssertionError(f"there is no rank {to}")

    def receive(self, shape: Sequence[int], dtype: torch.dtype, source: int) -> Tensor:
        raise AssertionError(f"there is no rank {source}")

    def broadcast(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers)


class Distributed:
    """`Collectives` over torch.distributed: gloo for what is on the CPU, NCCL for what is on a GPU.

    One per process. A rank that dies ends the connections to it, so that the calls of the others raise.
    """

    def __init__(self, rank: Rank, device: torch.device | str, init_method: str, timeout: timedelta = TIMEOUT) -> None:
        """Meet the other ranks: `init_method` is `tcp://<host of rank 0>:<port>`, the same for all."""
        self._device = torch.device(device)
        backend = "gloo"
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            backend = "cpu:gloo,cuda:nccl"
        distributed.init_process_group(
            backend, init_method=init_method, rank=rank.index, world_size=rank.mapping.world_size, timeout=timeout
        )
        self._size = rank.tp_size
        self._group: distributed.ProcessGroup | None = None
        for first in range(0, rank.mapping.world_size, rank.tp_size):
            # Every process takes part in making every group.
            ranks = Rank(mapping=rank.mapping, index=first).tensor_group
            group = distributed.new_group(list(ranks))
            if rank.index in ranks:
                self._group = group

    def all_reduce(self, x: Tensor) -> Tensor:
        if self._size > 1:
            x = x.contiguous()
            distributed.all_reduce(x, group=self._group)
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        if self._size == 1:
            return x
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(self._size)]
        distributed.all_gather(parts, x.contiguous(), group=self._group)
        return torch.cat(parts, dim=-1)

    def send(self, x: Tensor, to: int) -> None:
        distributed.send(x.contiguous(), to)

    def receive(self, shape: Sequence[int], dtype: torch.dtype, source: int) -> Tensor:
        x = torch.empty(tuple(shape), dtype=dtype, device=self._device)
        distributed.recv(x, source)
        return x

    def broadcast(self, numbers: Sequence[int]) -> list[int]:
        length = torch.tensor([len(numbers)])
        distributed.broadcast(length, 0)
        content = torch.empty(int(length), dtype=torch.long)
        if distributed.get_rank() == 0:
            content[:] = torch.tensor(list(numbers), dtype=torch.long)
        distributed.broadcast(content, 0)
        found: list[int] = content.tolist()
        return found

    def close(self) -> None:
        """Leave the group; no call may follow."""
        distributed.destroy_process_group()
