"""The decoder on torch: weights, caches and one step over a batch. What serving on the `torch` toolchain runs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.decoder import decoder
from trtllm_engine.network.rope import rope_tables
from trtllm_engine.network.torch_ops import Cache, TorchOps, plan_rows


class TorchDecoder:
    """A decoder with `max_batch_size` cache slots of `max_seq_len` positions each.

    `weights` are named as in the checkpoint; those of another dtype or device are converted, others are used where
    they are (memory-mapped ones included). A slot needs no clearing between requests: what is beyond the live length
    is never read.

    Not thread-safe; one caller at a time.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device | str,
        max_batch_size: int,
        max_seq_len: int,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = torch.device(device)
        self.max_batch_size = max_batch_size
        self.max_seq_len = max_seq_len
        self._weights = {name: weight.to(self.device, dtype) for name, weight in weights.items()}
        cosines, sines = rope_tables(config, max_seq_len)
        self._cosines, self._sines = cosines.to(self.device, dtype), sines.to(self.device, dtype)
        shape = (max_batch_size, config.num_kv_heads, max_seq_len, config.head_dim)
        self.caches: list[Cache] = [(self._empty(shape), self._empty(shape)) for _ in range(config.num_layers)]
        """(keys, values) of each layer, both [max_batch_size, Nkv, max_seq_len, H], written in place."""

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
        batch, tokens = input_ids.shape
        chosen = list(range(batch)) if slots is None else slots.tolist()
        rows = plan_rows(chosen, write_indices.tolist(), tokens, self.max_seq_len, self.device)
        positions = position_ids.to(self.device, torch.long).clamp(max=self.max_seq_len - 1)
        ops = TorchOps(
            self._weights, self.caches, self._cosines[positions].unsqueeze(1), self._sines[positions].unsqueeze(1), rows
        )
        picked = last_token_ids.to(self.device, torch.long)
        return decoder(ops, self.config, input_ids.to(self.device, torch.long), picked).squeeze(1)

    def _empty(self, shape: tuple[int, ...]) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)
