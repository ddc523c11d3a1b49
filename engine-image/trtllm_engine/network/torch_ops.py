"""The decoder's operations, computed at once with torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Cache = tuple[Tensor, Tensor]
"""Keys and values of one layer, each [slots, Nkv, S_max, H]."""


@dataclass(frozen=True, slots=True)
class Row:
    """Where one row of a batch reads and writes the caches."""

    slot: int
    start: int
    """Position of its first token."""
    written: int
    """How many of its tokens fit the cache; padding beyond the end is dropped."""
    mask: Tensor | None
    """bool [S, live], True where a query may look; absent if it may look everywhere, or `causal` says it."""
    causal: bool

    @property
    def live(self) -> int:
        """Length of the cache after this step."""
        return self.start + self.written


def plan_rows(
    slots: Sequence[int], starts: Sequence[int], tokens: int, max_seq_len: int, device: torch.device
) -> list[Row]:
    """Lay out a step of `tokens` tokens per row; a row's first token lands on its `start`."""
    rows: list[Row] = []
    for slot, start in zip(slots, starts, strict=True):
        written = min(tokens, max_seq_len - start)
        whole = start == 0 and written == tokens
        mask = None
        if tokens > 1 and not whole:
            queries = torch.arange(start, start + tokens, device=device)
            mask = torch.arange(start + written, device=device) <= queries[:, None]
        rows.append(Row(slot, start, written, mask, causal=tokens > 1 and whole))
    return rows


class TorchOps:
    """One step of a batch: `cosines` and `sines` are [B, 1, S, H / 2], `rows` says where each row's cache is.

    Attention runs row by row, each over its live length: nothing of the cache is copied, and neither a short row nor
    the free part of a slot costs anything.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        caches: Sequence[Cache],
        cosines: Tensor,
        sines: Tensor,
        rows: Sequence[Row],
    ) -> None:
        self._weights = weights
        self._caches = caches
        self._cosines = cosines
        self._sines = sines
        self._rows = rows

    def embed(self, ids: Tensor, table: str) -> Tensor:
        return functional.embedding(ids, self._weights[table])

    def linear(self, x: Tensor, weight: str, bias: str | None) -> Tensor:
        return functional.linear(x, self._weights[weight], None if bias is None else self._weights[bias])

    def rms_norm(self, x: Tensor, weight: str, eps: float) -> Tensor:
        scale = self._weights[weight]
        return functional.rms_norm(x.float(), scale.shape, eps=eps).to(x.dtype) * scale

    def split_heads(self, x: Tensor, heads: int, head_dim: int) -> Tensor:
        return x.view(*x.shape[:-1], heads, head_dim).transpose(1, 2)

    def merge_heads(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def rotate(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            (first * self._cosines - second * self._sines, second * self._cosines + first * self._sines), dim=-1
        )

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        keys, values = self._caches[layer]
        contexts: list[Tensor] = []
        for index, row in enumerate(self._rows):
            keys[row.slot, :, row.start : row.live] = key[index, :, : row.written]
            values[row.slot, :, row.start : row.live] = value[index, :, : row.written]
            contexts.append(
                functional.scaled_dot_product_attention(
                    query[index : index + 1],
                    keys[row.slot : row.slot + 1, :, : row.live],
                    values[row.slot : row.slot + 1, :, : row.live],
                    attn_mask=row.mask,
                    is_causal=row.causal,
                    scale=scale,
                    enable_gqa=True,
                )
            )
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def gated_silu(self, gate: Tensor, up: Tensor) -> Tensor:
        return functional.silu(gate) * up

    def pick(self, x: Tensor, index: Tensor) -> Tensor:
        return x[torch.arange(x.shape[0], device=x.device), index].unsqueeze(1)

    def float32(self, x: Tensor) -> Tensor:
        return x.float()
