"""An engine of the `torch` toolchain, loaded: the shared decoder on CPU or CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.torch_decoder import TorchDecoder
from trtllm_engine.serve.runtime import Row

PADDING: Final = 0
"""Any valid token: what it computes is overwritten before it is read."""


class TorchRuntime:
    """`Runtime` over a `TorchDecoder`."""

    def __init__(self, decoder: TorchDecoder, max_input_len: int) -> None:
        self._decoder = decoder
        self.device: str = decoder.device.type
        self.name = f"torch-{self.device}"
        self.max_batch_size = decoder.max_batch_size
        self.max_seq_len = decoder.max_seq_len
        self.max_input_len = max_input_len
        self.vocab_size = decoder.config.vocab_size

    def forward(self, rows: Sequence[Row]) -> torch.Tensor:
        return self._decoder.forward(**_tensors(rows))

    def follow(self, rows: Sequence[Row]) -> None:
        """Another rank's part of the step that rank 0 makes with the same rows."""
        self._decoder.follow(**_tensors(rows))


def _tensors(rows: Sequence[Row]) -> dict[str, torch.Tensor]:
    """The decoder's arguments."""
    width = max(len(row.tokens) for row in rows)
    positions = torch.tensor([row.position for row in rows])
    return {
        "input_ids": torch.tensor([[*row.tokens, *[PADDING] * (width - len(row.tokens))] for row in rows]),
        "position_ids": positions.unsqueeze(1) + torch.arange(width),
        "write_indices": positions,
        "last_token_ids": torch.tensor([len(row.tokens) - 1 for row in rows]),
        "slots": torch.tensor([row.slot for row in rows]),
    }


def choose_device(asked: str) -> str:
    """`cpu` or `cuda` for `auto`, `cpu` or `cuda`. Raises `Failure` where the pod does not have what was asked for."""
    if asked not in ("auto", "cpu", "cuda"):
        raise Failure(ExitCode.BAD_REQUEST, f"device {asked!r} is not one of auto, cpu, cuda", field="device")
    visible = torch.cuda.is_available()
    if asked == "cuda" and not visible:
        raise Failure(
            ExitCode.UNSUPPORTED,
            "device cuda was asked for, but this pod sees no GPU; request one, or set serving.device to auto or cpu",
            field="device",
        )
    return "cuda" if visible and asked != "cpu" else "cpu"
