"""The operations that a decoder is made of."""

from __future__ import annotations

from typing import Protocol, TypeVar

from trtllm_engine.network.config import Activation

Tensor = TypeVar("Tensor")


class Ops(Protocol[Tensor]):
    """One step of a rank's part of a decoder over a batch of B rows with S tokens each.

    Weights have the names of `weight_name`. An implementation holds the weights, the caches and what a call says about
    positions; `Tensor` is opaque to the decoder. N is a number of heads, H the size of one, E a number of experts.
    """

    def embed(self, ids: Tensor, table: str, vocabulary: range | None) -> Tensor:
        """Rows of a [V, D] table: [B, S] -> [B, S, D].

        The table may hold only the part `vocabulary` of the vocabulary; tokens outside of it become zeros.
        """

    def linear(self, x: Tensor, weight: str, bias: str | None) -> Tensor:
        """x @ weight.T + bias, the weight being [out, in]: [B, S, in] -> [B, S, out]."""

    def add_bias(self, x: Tensor, bias: str) -> Tensor:
        """x + bias: [B, S, D]."""

    def rms_norm(self, x: Tensor, weight: str, eps: float, offset: float) -> Tensor:
        """x / sqrt(mean(x^2) + eps) * (weight + offset), the mean taken in float32 over the last dimension.

        With an offset everything is float32 and rounded once, at the end.
        """

    def split_heads(self, x: Tensor, heads: int, head_dim: int) -> Tensor:
        """[B, S, N * H] -> [B, N, S, H]."""

    def merge_heads(self, x: Tensor) -> Tensor:
        """[B, N, S, H] -> [B, S, N * H]."""

    def rotate(self, x: Tensor, local: bool) -> Tensor:
        """Turn each head [B, N, S, H] by its token's position; the halves of what is rotated are the pairs.

        `local`: by the frequencies of the windowed layers, where those have their own.
        """

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int | None, cap: float | None
    ) -> Tensor:
        """Write key and value [B, Nkv, S, H] to the layer's cache, then attend to the past in it.

        A query sees the cached positions up to and including its own; with a window only the last `window` of them.
        Scores are multiplied by `scale`, and with a cap become cap * tanh(score / cap). Returns [B, N, S, H].
        """

    def add(self, x: Tensor, y: Tensor) -> Tensor: ...

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """x * factor, the factor rounded to x's type: [B, S, D]."""

    def gate(self, activation: Activation, gate: Tensor, up: Tensor) -> Tensor:
        """activation(gate) * up."""

    def route(self, x: Tensor, router: str, chosen: int, normalized: bool, experts: range) -> Tensor:
        """How much each of `experts` counts for a token: [B, S, D] -> float32 [B, S, E].

        The softmax over all experts, zero but for the token's `chosen` largest; these add up to 1 if `normalized`.
        """

    def experts(self, x: Tensor, routing: Tensor, activation: Activation, gate: str, up: str, down: str) -> Tensor:
        """The sum over the experts of routing * (gate(x @ gate.T, x @ up.T) @ down.T): [B, S, D] -> [B, S, D]."""

    def pick(self, x: Tensor, index: Tensor) -> Tensor:
        """One token of each row: [B, S, D], index [B] -> [B, 1, D]."""

    def float32(self, x: Tensor) -> Tensor: ...

    def soft_cap(self, x: Tensor, cap: float) -> Tensor:
        """cap * tanh(x / cap)."""

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over the ranks of the tensor group."""

    def all_gather(self, x: Tensor) -> Tensor:
        """The tensor group's parts side by side in the last dimension: [B, 1, V / tp] -> [B, 1, V]."""
