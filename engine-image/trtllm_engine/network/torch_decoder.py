"""The decoder on torch: weights, caches and one step over a batch. What serving on the `torch` toolchain runs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trtllm_engine.network.collectives import Alone, Collectives
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.decoder import decoder
from trtllm_engine.network.rank import WHOLE, Rank
from trtllm_engine.network.rope import rope_tables
from trtllm_engine.network.torch_ops import Cache, Observer, TorchOps, plan_rows


class TorchDecoder:
    """A rank of a decoder, with `max_batch_size` cache slots of `max_seq_len` positions each.

    `weights` are those of the rank, named by `weight_name`, or the values and scales of quantised ones; those of
    another dtype or device are converted, others are used where they are (memory-mapped ones included). A slot needs no
    clearing between requests: what is beyond the live length is never read.

    Where there are more ranks, every step is made by all of them at once: `forward` on rank 0, `follow` with the same
    arguments on the others. Not thread-safe; one caller at a time.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device | str,
        max_batch_size: int,
        max_seq_len: int,
        rank: Rank = WHOLE,
        collectives: Collectives | None = None,
        observe: Observer | None = None,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = torch.device(device)
        self.max_batch_size = max_batch_size
        self.max_seq_len = max_seq_len
        self.rank = rank
        self._collectives = collectives or Alone()
        self._observe = observe
        self._weights = {name: self._placed(weight) for name, weight in weights.items()}
        layers = rank.layers(config)
        self._windows = {config.window(layer) for layer in layers}
        self._tables = {
            local: tuple(table.to(self.device, dtype) for table in rope_tables(config, max_seq_len, local=local))
            for local in {config.is_local(layer) for layer in layers}
        }
        shape = (max_batch_size, len(rank.kv_heads(config)), max_seq_len, config.head_dim)
        self.caches: dict[int, Cache] = {layer: (self._empty(shape), self._empty(shape)) for layer in layers}
        """(keys, values) by layer, both [max_batch_size, Nkv, max_seq_len, H], written in place."""

    @torch.inference_mode()
    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        write_indices: Tensor,
        last_token_ids: Tensor,
        slots: Tensor | None = None,
    ) -> Tensor:
        """Run S tokens of each of B rows and return the logits of one token per row, float32 [B, V].

        input_ids [B, S]: tokens, short rows padded on the right with any valid token.
        position_ids [B, S]: position of each token in its sequence, below `max_seq_len` (padding may be beyond).
        write_indices [B]: cache position of each row's first token, so the number of tokens that the slot already
            holds. Token s of a row sees the cache up to write_indices + s: a prompt may come in chunks, and decoding
            is S = 1. The same position may be written again (that is how padding is overwritten).
        last_token_ids [B]: index within the S tokens whose logits are wanted.
        slots [B]: which cache slot each row uses, all different; absent: 0, 1, ... B - 1.

        All are integer tensors (int32 or int64), on any device.
        """
        assert self.rank.index == 0, "the other ranks follow"
        logits = self._step(input_ids, position_ids, write_indices, last_token_ids, slots)
        if not self.rank.is_last_stage:
            shape = (input_ids.shape[0], 1, self.config.vocab_size)
            logits = self._collectives.receive(shape, torch.float32, source=self._answering)
        return logits.squeeze(1)

    @torch.inference_mode()
    def follow(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        write_indices: Tensor,
        last_token_ids: Tensor,
        slots: Tensor | None = None,
    ) -> None:
        """Take this rank's part in the step that rank 0 makes with the same arguments."""
        logits = self._step(input_ids, position_ids, write_indices, last_token_ids, slots)
        if self.rank.index == self._answering:
            self._collectives.send(logits, to=0)

    @property
    def _answering(self) -> int:
        """The rank that gives the logits to rank 0: the first of the last stage."""
        return self.rank.mapping.world_size - self.rank.tp_size

    def _step(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        write_indices: Tensor,
        last_token_ids: Tensor,
        slots: Tensor | None,
    ) -> Tensor:
        """Logits [B, 1, V] on the last stage; the hidden states, given to the next stage already, on the others."""
        batch, tokens = input_ids.shape
        chosen = list(range(batch)) if slots is None else slots.tolist()
        rows = plan_rows(chosen, write_indices.tolist(), tokens, self.max_seq_len, self._windows, self.device)
        positions = position_ids.to(self.device, torch.long).clamp(max=self.max_seq_len - 1)
        angles = {
            local: (cosines[positions].unsqueeze(1), sines[positions].unsqueeze(1))
            for local, (cosines, sines) in self._tables.items()
        }
        ops = TorchOps(self._weights, self.caches, angles, rows, self._collectives, self._observe)
        if self.rank.is_first_stage:
            x = input_ids.to(self.device, torch.long)
        else:
            x = self._collectives.receive((batch, tokens, self.config.hidden_size), self.dtype, self.rank.previous)
        result = decoder(ops, self.config, self.rank, x, lambda: last_token_ids.to(self.device, torch.long))
        if not self.rank.is_last_stage:
            self._collectives.send(result, self.rank.next)
        return result

    def _placed(self, weight: Tensor) -> Tensor:
        """Quantised values are of one byte, and keep their type."""
        return weight.to(self.device, self.dtype if weight.itemsize > 1 else weight.dtype)

    def _empty(self, shape: tuple[int, ...]) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)
