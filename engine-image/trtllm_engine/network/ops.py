"""The operations that a decoder is made of."""

from __future__ import annotations

from typing import Protocol, TypeVar

Tensor = TypeVar("Tensor")


class Ops(Protocol[Tensor]):
    """One step of a decoder over a batch of B rows with S tokens each; weights are named as in the checkpoint.

    An implementation holds the weights, the caches and what a call says about positions; `Tensor` is opaque to the
    decoder. N is a number of heads, H the size of one.
    """

    def embed(self, ids: Tensor, table: str) -> Tensor:
        """Rows of a [V, D] table: [B, S] -> [B, S, D]."""

    def linear(self, x: Tensor, weight: str, bias: str | None) -> Tensor:
        """x @ weight.T + bias, the weight being [out, in]: [B, S, in] -> [B, S, out]."""

    def rms_norm(self, x: Tensor, weight: str, eps: float) -> Tensor:
        """x / sqrt(mean(x^2) + eps) * weight, the mean taken in float32 over the last dimension."""

    def split_heads(self, x: Tensor, heads: int, head_dim: int) -> Tensor:
        """[B, S, N * H] -> [B, N, S, H]."""

    def merge_heads(self, x: Tensor) -> Tensor:
        """[B, N, S, H] -> [B, S, N * H]."""

    def rotate(self, x: Tensor) -> Tensor:
        """Turn each head [B, N, S, H] by its token's position; the halves of a head are the pairs."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Write key and value [B, Nkv, S, H] to the layer's cache, then attend to all of the past in it.

        A query sees the cached positions up to and including its own. Returns [B, N, S, H].
        """

    def add(self, x: Tensor, y: Tensor) -> Tensor: ...

    def gated_silu(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) * up."""

    def pick(self, x: Tensor, index: Tensor) -> Tensor:
        """One token of each row: [B, S, D], index [B] -> [B, 1, D]."""

    def float32(self, x: Tensor) -> Tensor: ...
