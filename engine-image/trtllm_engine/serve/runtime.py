"""What the scheduler needs from whatever executes an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a step."""

    slot: int
    """Its row of the key/value cache, in [0, max_batch_size)."""
    position: int
    """Where `tokens` begin in the sequence; everything before is in the cache already."""
    tokens: Sequence[int]
    """At least one."""


class Runtime(Protocol):
    """An engine that is loaded. It is called from one thread at a time."""

    @property
    def name(self) -> str:
        """What computes, for people: `torch-cpu`, `torch-cuda`."""

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""

    @property
    def max_batch_size(self) -> int:
        """Cache slots: sequences that can be live at once."""

    @property
    def max_input_len(self) -> int:
        """Tokens of the longest prompt."""

    @property
    def max_seq_len(self) -> int:
        """Tokens of prompt and answer together that one slot can hold."""

    @property
    def vocab_size(self) -> int:
        """Token ids are in [0, vocab_size)."""

    def forward(self, rows: Sequence[Row]) -> torch.Tensor:
        """Run the rows and put their keys and values into their slots.

        Returns the logits after each row's last token: [len(rows), vocab_size] float32, on the device.
        Rows may differ in length; position + the longest row's length must not exceed `max_seq_len` for any row,
        because shorter rows are padded.
        """
