"""The next tokens of a batch: logits are shaped, a token is drawn, and what was asked about it is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from trtllm_engine.serve.sampling import Draw, sample
from trtllm_engine.serve.shaping import Shaper

LEAST_LOGPROB: Final = -9999.0
"""Stands for minus infinity, which JSON has no word for."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How one row's token is chosen, and what is wanted to know of it."""

    draw: Draw
    shapers: Sequence[Shaper] = ()
    logprobs: int | None = None
    """None: no probabilities; else the chosen token's, and those of so many most likely ones."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms of the model's own probabilities, before penalties, masks and temperature."""

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]
    """The most likely tokens, falling."""


@dataclass(frozen=True, slots=True)
class Chosen:
    token: int
    logprobs: TokenLogprobs | None = None


def choose(logits: torch.Tensor, choices: Sequence[Choice]) -> list[Chosen]:
    """One token per row of `logits` [B, V] float32; a row's token depends on that row only."""
    shaped = logits.clone() if any(choice.shapers for choice in choices) else logits
    for row, choice in enumerate(choices):
        for shaper in choice.shapers:
            shaper.apply(shaped[row])
    tokens = sample(shaped, [choice.draw for choice in choices])
    return [
        Chosen(token, None if choice.logprobs is None else _logprobs(logits[row], token, choice.logprobs))
        for row, (choice, token) in enumerate(zip(choices, tokens, strict=True))
    ]


def _logprobs(logits: torch.Tensor, token: int, top: int) -> TokenLogprobs:
    probabilities = torch.log_softmax(logits, dim=-1).clamp(min=LEAST_LOGPROB)
    values, tokens = probabilities.topk(min(top, probabilities.shape[-1]))
    most_likely = list(zip(tokens.tolist(), values.tolist(), strict=True))
    return TokenLogprobs(token, probabilities[token].item(), most_likely)
