"""An engine that is spread over ranks, seen from rank 0."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trtllm_engine.serve.leader import Leader
from trtllm_engine.serve.runtime import Row, Runtime


class GroupRuntime:
    """`Runtime` of rank 0: the others are told each step before it is computed here."""

    def __init__(self, own: Runtime, leader: Leader, world_size: int) -> None:
        self._own = own
        self._leader = leader
        self.device = own.device
        self.name = f"{own.name}-{world_size}-ranks"
        self.max_batch_size = own.max_batch_size
        self.max_seq_len = own.max_seq_len
        self.max_input_len = own.max_input_len
        self.vocab_size = own.vocab_size

    def forward(self, rows: Sequence[Row]) -> torch.Tensor:
        self._leader.step(rows)
        return self._own.forward(rows)
