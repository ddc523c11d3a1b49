"""What the decoder is compared with, and the ways to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import tensorrt_rtx as trt
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.unit.engine.lockstep import Lockstep
from tests.unit.engine.network_walk import WalkedDecoder
from trtllm_engine.checkpoint.folder import read_json
from trtllm_engine.checkpoint.stored_scheme import StoredScheme
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.contract import Mapping
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.families import read_config
from trtllm_engine.network.rank import check_mapping
from trtllm_engine.network.scheme import Scheme
from trtllm_engine.network.tensorrt_ops import TensorRtOps, define_network
from trtllm_engine.network.torch_decoder import TorchDecoder

TOLERANCE = 1e-4
"""Absolute, on float32 logits of size 10; what is left is the order of additions."""

MAX_SEQ_LEN = 32
PROMPTS = ([11, 42, 7, 300, 5, 123, 64], [9, 250, 31])
"""Two prompts of different lengths, so that the shorter one is padded on the right."""

ONE = Mapping()


class Decoder(Protocol):
    def forward(
        self, input_ids: Tensor, position_ids: Tensor, write_indices: Tensor, last_token_ids: Tensor, /
    ) -> Tensor: ...


class Follower(Decoder, Protocol):
    def follow(
        self, input_ids: Tensor, position_ids: Tensor, write_indices: Tensor, last_token_ids: Tensor, /
    ) -> None: ...


class Executor(Protocol):
    def __call__(
        self,
        folder: Path,
        mapping: Mapping = ONE,
        *,
        scheme: Scheme | None = None,
        stored: StoredScheme | None = None,
    ) -> Decoder: ...


class Ranks:
    """All ranks of a decoder, in lockstep, called like one."""

    def __init__(self, lockstep: Lockstep, ranks: Sequence[Follower]) -> None:
        self._lockstep = lockstep
        self._first, *self._others = ranks

    def forward(self, input_ids: Tensor, position_ids: Tensor, write_indices: Tensor, last_token_ids: Tensor) -> Tensor:
        step = (input_ids, position_ids, write_indices, last_token_ids)
        first, *_ = self._lockstep.run(
            partial(self._first.forward, *step), *(partial(rank.follow, *step) for rank in self._others)
        )
        assert first is not None
        return first


def config_of(folder: Path) -> DecoderConfig:
    return read_config(read_json(folder / "config.json"))


def on_torch(
    folder: Path,
    mapping: Mapping = ONE,
    dtype: torch.dtype = torch.float32,
    *,
    scheme: Scheme | None = None,
    stored: StoredScheme | None = None,
) -> Decoder:
    config, lockstep = config_of(folder), Lockstep(mapping)
    check_mapping(config, mapping)
    ranks = [
        TorchDecoder(
            config,
            dict(load_weights(folder, config, dtype, rank, scheme, stored)),
            dtype,
            "cpu",
            max_batch_size=2,
            max_seq_len=MAX_SEQ_LEN,
            rank=rank,
            collectives=lockstep.collectives(rank),
        )
        for rank in lockstep.ranks
    ]
    return ranks[0] if len(ranks) == 1 else Ranks(lockstep, ranks)


def on_network(
    folder: Path,
    mapping: Mapping = ONE,
    ops: type[TensorRtOps] = TensorRtOps,
    *,
    scheme: Scheme | None = None,
    stored: StoredScheme | None = None,
) -> Decoder:
    config, lockstep = config_of(folder), Lockstep(mapping)
    ranks: list[WalkedDecoder] = []
    for rank in lockstep.ranks:
        weights = dict(load_weights(folder, config, torch.float32, rank, scheme, stored))
        network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network(0)
        kept = define_network(trt, network, config, weights, torch.float32, MAX_SEQ_LEN, ops, rank)
        ranks.append(
            WalkedDecoder(trt, network, kept.constants, batch=2, rank=rank, collectives=lockstep.collectives(rank))
        )
    return ranks[0] if len(ranks) == 1 else Ranks(lockstep, ranks)


EXECUTORS: dict[str, Executor] = {"torch": on_torch, "TensorRT network": on_network}


@dataclass(frozen=True)
class Expected:
    """What transformers makes of `PROMPTS`, each by itself, without a cache and without padding."""

    logits: list[Tensor]
    """Of each step's last tokens: the prompts', then those of every token chosen."""
    choices: list[list[int]]
    """Greedy: one token for each prompt, for each step."""


class Reference:
    """transformers, one sequence at a time, without a cache and without padding."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)

    @torch.inference_mode()
    def last_logits(self, sequences: list[list[int]]) -> Tensor:
        return torch.stack([self._model(torch.tensor([tokens])).logits[0, -1].float() for tokens in sequences])

    def answer(self, steps: int = 8) -> Expected:
        """`steps` greedy steps after the prompts."""
        sequences, expected = [list(prompt) for prompt in PROMPTS], Expected([], [])
        for _ in range(steps + 1):
            expected.logits.append(self.last_logits(sequences))
            expected.choices.append(expected.logits[-1].argmax(-1).tolist())
            for tokens, choice in zip(sequences, expected.choices[-1], strict=True):
                tokens.append(choice)
        return expected


def prefill(decoder: Decoder, prompts: list[list[int]], start: int = 0) -> Tensor:
    """One call for all prompts, short ones padded on the right."""
    width = max(map(len, prompts))
    return decoder.forward(
        torch.tensor([prompt + [0] * (width - len(prompt)) for prompt in prompts]),
        torch.arange(start, start + width).expand(len(prompts), width),
        torch.full((len(prompts),), start),
        torch.tensor([len(prompt) - 1 for prompt in prompts]),
    )


def decode(decoder: Decoder, sequences: list[list[int]]) -> Tensor:
    """One call for the last token of each sequence, each at its own position."""
    last = torch.tensor([len(tokens) - 1 for tokens in sequences])
    return decoder.forward(
        torch.tensor([tokens[-1:] for tokens in sequences]),
        last[:, None],
        last,
        torch.zeros(len(sequences), dtype=torch.int32),
    )


@dataclass(frozen=True)
class Comparison:
    """A decoder against what was expected of it."""

    worst: float
    """Largest difference of logits."""
    same_text: bool
    """Whether it chose the same tokens."""


def compare(decoder: Decoder, expected: Expected) -> Comparison:
    """The prefill of a padded batch, and decoding steps after it; each step goes on with the expected tokens."""
    sequences = [list(prompt) for prompt in PROMPTS]
    worst, same_text = 0.0, True
    for step, (logits, choices) in enumerate(zip(expected.logits, expected.choices, strict=True)):
        found = prefill(decoder, sequences) if step == 0 else decode(decoder, sequences)
        worst = max(worst, (found - logits).abs().max().item())
        same_text = same_text and found.argmax(-1).tolist() == choices
        for tokens, choice in zip(sequences, choices, strict=True):
            tokens.append(choice)
    return Comparison(worst, same_text)


def equals(decoder: Decoder, expected: Expected) -> bool:
    """Logits within `TOLERANCE`, and the same text."""
    comparison = compare(decoder, expected)
    return comparison.worst < TOLERANCE and comparison.same_text
