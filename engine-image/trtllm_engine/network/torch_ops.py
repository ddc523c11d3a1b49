"""The decoder's operations, computed at once with torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from trtllm_engine.network.collectives import Collectives
from trtllm_engine.network.config import Activation
from trtllm_engine.network.quantized import INPUT_SCALE, SCALES, VALUES, dequantize, nearest

Cache = tuple[Tensor, Tensor]
"""Keys and values of one layer, each [slots, Nkv, S_max, H]."""

Angles = tuple[Tensor, Tensor]
"""Cosines and sines of a step's tokens, each [B, 1, S, rotated / 2]."""

Observer = Callable[[str, Tensor], None]
"""Is told the name of each weight, and what it multiplies."""


@dataclass(frozen=True, slots=True)
class View:
    """Which cached positions the queries of a row may look at."""

    first: int
    """Nothing before it is looked at."""
    mask: Tensor | None
    """bool [S, live - first], True where a query may look; absent if it may look everywhere, or `causal` says it."""
    causal: bool


@dataclass(frozen=True, slots=True)
class Row:
    """Where one row of a batch reads and writes the caches."""

    slot: int
    start: int
    """Position of its first token."""
    written: int
    """How many of its tokens fit the cache; padding beyond the end is dropped."""
    views: Mapping[int | None, View]
    """By the layer's window."""

    @property
    def live(self) -> int:
        """Length of the cache after this step."""
        return self.start + self.written


def plan_rows(
    slots: Sequence[int],
    starts: Sequence[int],
    tokens: int,
    max_seq_len: int,
    windows: Iterable[int | None],
    device: torch.device,
) -> list[Row]:
    """Lay out a step of `tokens` tokens per row; a row's first token lands on its `start`."""
    rows: list[Row] = []
    for slot, start in zip(slots, starts, strict=True):
        written = min(tokens, max_seq_len - start)
        views = {window: _view(start, tokens, written, window, device) for window in windows}
        rows.append(Row(slot, start, written, views))
    return rows


def _view(start: int, tokens: int, written: int, window: int | None, device: torch.device) -> View:
    if window is not None and start + tokens <= window:
        window = None  # it hides nothing yet
    if window is None and start == 0 and written == tokens:
        return View(0, None, causal=tokens > 1)
    first = 0 if window is None else max(0, start - window + 1)
    if tokens == 1:
        return View(first, None, causal=False)
    queries = torch.arange(start, start + tokens, device=device)[:, None]
    keys = torch.arange(first, start + written, device=device)
    mask = keys <= queries
    return View(first, mask if window is None else mask & (keys > queries - window), causal=False)


class TorchOps:
    """One step of a batch: `rows` says where each row's cache is, `caches` are by layer.

    `angles` are by whether they are local. Attention runs row by row, each over its live length: nothing of the cache
    is copied, and neither a short row nor the free part of a slot costs anything.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        caches: Mapping[int, Cache],
        angles: Mapping[bool, Angles],
        rows: Sequence[Row],
        collectives: Collectives,
        observe: Observer | None = None,
    ) -> None:
        self._weights = weights
        self._caches = caches
        self._angles = angles
        self._rows = rows
        self._collectives = collectives
        self._observe = observe

    def embed(self, ids: Tensor, table: str, vocabulary: range | None) -> Tensor:
        if vocabulary is None:
            return functional.embedding(ids, self._weights[table])
        here = ids.clamp(vocabulary.start, vocabulary.stop - 1)
        rows = functional.embedding(here - vocabulary.start, self._weights[table])
        return rows * (here == ids).unsqueeze(-1)

    def linear(self, x: Tensor, weight: str, bias: str | None) -> Tensor:
        if self._observe is not None:
            self._observe(weight, x)
        rounded = self._rounded(x, weight)
        return functional.linear(rounded, self._matrix(weight), None if bias is None else self._weights[bias])

    def add_bias(self, x: Tensor, bias: str) -> Tensor:
        return x + self._weights[bias]

    def rms_norm(self, x: Tensor, weight: str, eps: float, offset: float) -> Tensor:
        scale = self._weights[weight]
        normal = functional.rms_norm(x.float(), scale.shape, eps=eps)
        return (normal * (scale.float() + offset)).to(x.dtype) if offset else normal.to(x.dtype) * scale

    def split_heads(self, x: Tensor, heads: int, head_dim: int) -> Tensor:
        return x.view(*x.shape[:-1], heads, head_dim).transpose(1, 2)

    def merge_heads(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def rotate(self, x: Tensor, local: bool) -> Tensor:
        cosines, sines = self._angles[local]
        half = cosines.shape[-1]
        first, second, kept = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        turned = first * cosines - second * sines, second * cosines + first * sines
        return torch.cat((*turned, kept) if kept.shape[-1] else turned, dim=-1)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None, cap: float | None
    ) -> Tensor:
        keys, values = self._caches[layer]
        contexts: list[Tensor] = []
        for index, row in enumerate(self._rows):
            keys[row.slot, :, row.start : row.live] = key[index, :, : row.written]
            values[row.slot, :, row.start : row.live] = value[index, :, : row.written]
            view = row.views[window]
            seen = slice(view.first, row.live)
            operands = (
                query[index : index + 1],
                keys[row.slot : row.slot + 1, :, seen],
                values[row.slot : row.slot + 1, :, seen],
            )
            if cap is not None:
                contexts.append(_capped_attention(*operands, view, scale, cap))
                continue
            contexts.append(
                functional.scaled_dot_product_attention(
                    *operands, attn_mask=view.mask, is_causal=view.causal, scale=scale, enable_gqa=True
                )
            )
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def scale(self, x: Tensor, factor: float) -> Tensor:
        return x * torch.tensor(factor, dtype=x.dtype, device=x.device)

    def gate(self, activation: Activation, gate: Tensor, up: Tensor) -> Tensor:
        if activation is Activation.GELU_TANH:
            return functional.gelu(gate, approximate="tanh") * up
        return functional.silu(gate) * up

    def route(self, x: Tensor, router: str, chosen: int, normalized: bool, experts: range) -> Tensor:
        scores = self.linear(x, router, None).float().softmax(dim=-1)
        largest, which = scores.topk(chosen, dim=-1)
        if normalized:
            largest = largest / largest.sum(dim=-1, keepdim=True)
        return torch.zeros_like(scores).scatter_(-1, which, largest)[..., experts.start : experts.stop]

    def experts(self, x: Tensor, routing: Tensor, activation: Activation, gate: str, up: str, down: str) -> Tensor:
        """Each expert computes the tokens that chose it, and no others."""
        tokens, counts = x.flatten(0, 1), routing.flatten(0, 1)
        total = torch.zeros_like(tokens)
        for expert in counts.any(dim=0).nonzero().flatten().tolist():
            rows = counts[:, expert].nonzero().flatten()
            asked = tokens[rows]
            inner = self.gate(
                activation,
                functional.linear(asked, self._matrix(gate, expert)),
                functional.linear(asked, self._matrix(up, expert)),
            )
            answers = functional.linear(inner, self._matrix(down, expert)) * counts[rows, expert, None]
            total.index_add_(0, rows, answers.to(total.dtype))
        return total.view(x.shape)

    def pick(self, x: Tensor, index: Tensor) -> Tensor:
        return x[torch.arange(x.shape[0], device=x.device), index].unsqueeze(1)

    def float32(self, x: Tensor) -> Tensor:
        return x.float()

    def soft_cap(self, x: Tensor, cap: float) -> Tensor:
        return torch.tanh(x / cap) * cap

    def all_reduce(self, x: Tensor) -> Tensor:
        return self._collectives.all_reduce(x)

    def all_gather(self, x: Tensor) -> Tensor:
        return self._collectives.all_gather(x)

    def _rounded(self, x: Tensor, weight: str) -> Tensor:
        """What a weight multiplies, as the numbers that it has itself where its input has a scale."""
        scale = self._weights.get(weight + INPUT_SCALE)
        return x if scale is None else nearest(x, scale, self._weights[weight + VALUES].dtype).to(x.dtype) * scale

    def _matrix(self, name: str, expert: int | None = None) -> Tensor:
        """A weight, or one expert's; of quantised ones nothing is kept but values and scales."""

        def kept(name: str) -> Tensor:
            return self._weights[name] if expert is None else self._weights[name][expert]

        return kept(name) if name in self._weights else dequantize(kept(name + VALUES), kept(name + SCALES))


def _capped_attention(query: Tensor, key: Tensor, value: Tensor, view: View, scale: float, cap: float) -> Tensor:
    """What no fused kernel of torch does."""
    groups = query.shape[1] // key.shape[1]
    scores = torch.matmul(query, key.repeat_interleave(groups, dim=1).mT) * scale
    scores = torch.tanh(scores / cap) * cap
    mask = torch.ones_like(scores, dtype=torch.bool).tril() if view.causal else view.mask
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, value.repeat_interleave(groups, dim=1))
