"""A rank in a process of its own: `python -m tests.unit.engine.follower FOLDER TP PP RANK ADDRESS`.

It has a module to itself because the libraries that tests compare with take long to import.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import torch

from trtllm_engine.checkpoint.folder import read_json
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.contract import Mapping
from trtllm_engine.network.collectives import Distributed
from trtllm_engine.network.families import read_config
from trtllm_engine.network.rank import Rank
from trtllm_engine.network.torch_decoder import TorchDecoder

PATIENCE = timedelta(minutes=2)
MAX_SEQ_LEN = 32


def meet(folder: Path, mapping: Mapping, index: int, address: str) -> tuple[TorchDecoder, Distributed]:
    """A loaded rank that has met the others."""
    config, rank = read_config(read_json(folder / "config.json")), Rank(mapping=mapping, index=index)
    collectives = Distributed(rank, "cpu", address, PATIENCE)
    weights = dict(load_weights(folder, config, torch.float32, rank))
    decoder = TorchDecoder(config, weights, torch.float32, "cpu", 2, MAX_SEQ_LEN, rank=rank, collectives=collectives)
    return decoder, collectives


def follow(folder: Path, mapping: Mapping, index: int, address: str) -> None:
    """Take part in the steps that rank 0 tells, until it tells an empty one."""
    decoder, collectives = meet(folder, mapping, index, address)
    while numbers := collectives.broadcast([]):
        batch, tokens, *values = numbers
        end = batch * tokens
        ids, positions = (torch.tensor(part).view(batch, tokens) for part in (values[:end], values[end : 2 * end]))
        indices, last = (torch.tensor(part) for part in (values[2 * end : -batch], values[-batch:]))
        decoder.follow(ids, positions, indices, last)
    collectives.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, tp, pp, rank, address = sys.argv[1:]
    follow(Path(folder), Mapping(tp=int(tp), pp=int(pp)), int(rank), address)
