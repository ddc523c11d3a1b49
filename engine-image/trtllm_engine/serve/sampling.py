"""From logits to the next tokens, all rows at once, each row as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How one row's token is chosen."""

    temperature: float = 0.0
    """0 is greedy: the largest logit, the lowest token id on a tie."""
    top_p: float = 1.0
    """In (0, 1]: only the most likely tokens that together reach this probability; always at least one."""
    uniform: float = 0.0
    """The row's own random number in [0, 1). The caller draws it, so that a row's luck is not its neighbours'."""


def sample(logits: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
    """One token per row of `logits` [B, V] float32, on any device. A row's token depends on that row only."""
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    for rows, nucleus in (
        ([i for i, d in enumerate(draws) if d.temperature > 0 and d.top_p < 1], True),
        ([i for i, d in enumerate(draws) if d.temperature > 0 and d.top_p >= 1], False),
    ):
        if rows:
            drawn = _inverse_cdf(logits[rows], [draws[i] for i in rows], nucleus)
            for row, token in zip(rows, drawn, strict=True):
                tokens[row] = token
    return tokens


def _inverse_cdf(logits: torch.Tensor, draws: Sequence[Draw], nucleus: bool) -> list[int]:
    """The first token at which the cumulated probability exceeds `uniform`; sorted only where top_p needs it."""

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64).to(logits.device).unsqueeze(1)

    # Shifted before it is scaled, so that no temperature, however small, makes infinity minus infinity.
    scaled = (logits.double() - logits.amax(dim=-1, keepdim=True)) / column([d.temperature for d in draws])
    probabilities = torch.softmax(scaled, dim=-1)
    order: torch.Tensor | None = None
    if nucleus:
        probabilities, order = probabilities.sort(dim=-1, descending=True, stable=True)
        mass_before = probabilities.cumsum(dim=-1) - probabilities
        kept = mass_before < column([d.top_p for d in draws])
        kept[:, 0] = True
        probabilities = probabilities * kept
    cumulated = probabilities.cumsum(dim=-1)
    threshold = column([d.uniform for d in draws]) * cumulated[:, -1:]
    index = torch.searchsorted(cumulated, threshold, right=True).clamp(max=cumulated.shape[-1] - 1)
    if order is not None:
        index = order.gather(-1, index)
    tokens: list[int] = index.squeeze(1).tolist()
    return tokens
