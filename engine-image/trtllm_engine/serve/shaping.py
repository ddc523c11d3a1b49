"""What changes a row's logits before a token is chosen: penalties on what was said, and biases that the client set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch


class Shaper(Protocol):
    """One answer's own; called for one token after the other, never twice at a time."""

    def apply(self, logits: torch.Tensor) -> None:
        """Change one row's logits [V] in place."""

    def accept(self, token: int) -> None:
        """The token that was chosen from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalties:
    """How much less likely a token becomes that was there before."""

    frequency: float = 0.0
    """Taken off the logit for each time that the answer has the token."""
    presence: float = 0.0
    """Taken off once if the answer has it at all."""
    repetition: float = 1.0
    """Above 0: positive logits are divided by it, negative ones multiplied, for tokens of the prompt and the answer."""

    @property
    def neutral(self) -> bool:
        return self == Penalties()


class Penalizer:
    """The penalties of one answer, and the counts that they need."""

    def __init__(
        self, penalties: Penalties, prompt: Sequence[int], vocab_size: int, device: torch.device | str
    ) -> None:
        self._penalties = penalties
        self._counts = torch.zeros(vocab_size, device=device)
        self._seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        self._seen[torch.tensor(prompt, device=device)] = True

    def apply(self, logits: torch.Tensor) -> None:
        by = self._penalties
        if by.repetition != 1.0:
            repeated = torch.where(logits > 0, logits / by.repetition, logits * by.repetition)
            torch.where(self._seen, repeated, logits, out=logits)
        logits -= by.frequency * self._counts + by.presence * (self._counts > 0)

    def accept(self, token: int) -> None:
        self._counts[token] += 1
        self._seen[token] = True


class Bias:
    """Added to the logits of some tokens."""

    def __init__(self, bias: Mapping[int, float], device: torch.device | str) -> None:
        self._tokens = torch.tensor(list(bias), device=device)
        self._values = torch.tensor(list(bias.values()), device=device)

    def apply(self, logits: torch.Tensor) -> None:
        logits[self._tokens] += self._values

    def accept(self, token: int) -> None:
        """A bias never changes."""
