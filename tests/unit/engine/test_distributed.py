"""Ranks in processes of their own, over the real torch.distributed."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.models import tiny_llama
from tests.unit.engine.follower import meet
from tests.unit.engine.reference import PROMPTS, Reference, equals, prefill
from trtllm_engine.contract import Mapping
from trtllm_engine.network.collectives import Distributed
from trtllm_engine.network.torch_decoder import TorchDecoder


class Leader:
    """Rank 0: it tells the others each step before it makes it."""

    def __init__(self, decoder: TorchDecoder, collectives: Distributed) -> None:
        self._decoder = decoder
        self.collectives = collectives

    def forward(self, *step: torch.Tensor) -> torch.Tensor:
        batch, tokens = step[0].shape
        self.collectives.broadcast([batch, tokens, *(int(n) for part in step for n in part.flatten())])
        return self._decoder.forward(*step)


@pytest.mark.parametrize("mapping", [Mapping(tp=2), Mapping(pp=2)], ids=["tp2", "pp2"])
def test_two_processes_give_the_logits_of_transformers_until_one_dies(mapping: Mapping, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, vocab_size=320)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    arguments = [str(folder), str(mapping.tp), str(mapping.pp), "1", address]
    other = subprocess.Popen([sys.executable, "-m", "tests.unit.engine.follower", *arguments])
    try:
        leader = Leader(*meet(folder, mapping, 0, address))
        assert equals(leader, Reference(folder).answer(steps=3))
        other.kill()
        other.wait()
        with pytest.raises(RuntimeError):
            prefill(leader, [list(prompt) for prompt in PROMPTS])
    finally:
        other.kill()
        other.wait()
        leader.collectives.close()
