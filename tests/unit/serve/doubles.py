"""Doubles of what the server stands on: a runtime that answers from a script, and a tokenizer of bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch

from trtllm_engine.serve.load import Loaded
from trtllm_engine.serve.runtime import Row
from trtllm_engine.serve.tokenizer import ChatTemplateError, JsonObject

END = 0
"""The double tokenizer's end-of-sequence token."""

PROMPT_END = 1
"""What it puts behind every prompt, as real ones put a special token before it."""

Script = Callable[[list[int]], int | torch.Tensor]
"""From all tokens of a sequence to the next one, or to its logits."""


class DoubleTokenizer:
    """Tokens are the bytes of UTF-8; the chat template is `role: content` per line."""

    special_tokens = frozenset({END, PROMPT_END})

    def __init__(self, chat_template: bool = True) -> None:
        self._chat_template = chat_template

    def encode(self, text: str) -> list[int]:
        return [*text.encode(), PROMPT_END]

    def encode_chat(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None, settings: JsonObject
    ) -> list[int]:
        if not self._chat_template:
            raise ChatTemplateError("this model has no chat template")
        lines = [f"{name}: {value}" for name, value in settings.items()]
        lines += [f"tools: {len(tools)}"] if tools else []
        lines += [f"{message['role']}: {message['content']}" for message in messages]
        return self.encode("\n".join([*lines, "assistant: "]))

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token not in (END, PROMPT_END)).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        return {END: b"<end>", PROMPT_END: b"<prompt end>"}.get(token, bytes([token]))


class DoubleRuntime:
    """Keeps the tokens of each slot as a cache would, and lets a script choose the next one.

    `certainty` is the logit of what the script chooses, all others are 0. A script may instead return all of a row's
    logits. While `gate` is closed no step is computed,
    so a test can look at a moment in between. `dies_at` makes the n-th step raise.
    """

    name = "torch-cpu"
    device = "cpu"
    vocab_size = 256

    def __init__(self, script: Script, *, slots: int = 4, context: int = 64, certainty: float = 100.0) -> None:
        self.max_batch_size = slots
        self.max_seq_len = context
        self.max_input_len = context
        self.gate = threading.Event()
        self.gate.set()
        self.steps: list[list[Row]] = []
        self.dies_at: int | None = None
        self._script = script
        self._certainty = certainty
        self._cache: list[list[int]] = [[] for _ in range(slots)]

    def forward(self, rows: Sequence[Row]) -> torch.Tensor:
        assert self.gate.wait(timeout=30), "the test never opened the gate"
        self.steps.append(list(rows))
        if self.dies_at == len(self.steps):
            raise RuntimeError("the device fell off the bus")
        slots = [row.slot for row in rows]
        assert len(set(slots)) == len(slots), "two rows of a step share a slot"
        width = max(len(row.tokens) for row in rows)
        logits = torch.zeros(len(rows), self.vocab_size)
        for i, row in enumerate(rows):
            cache = self._cache[row.slot]
            assert row.position <= len(cache), "a gap in the cache"
            assert row.position + width <= self.max_seq_len, "padding is written outside the cache"
            cache[row.position :] = row.tokens
            said = self._script(cache)
            if isinstance(said, int):
                logits[i, said] = self._certainty
            else:
                logits[i] = said
        return logits


def saying(answer: str) -> Script:
    """Answers every prompt with this text, then ends."""
    wanted = [*answer.encode(), END]
    return lambda tokens: wanted[min(len(tokens) - 1 - tokens.index(PROMPT_END), len(wanted) - 1)]


def endless(tokens: list[int]) -> int:
    """Never ends by itself: a, b, c, ... by position."""
    return ord("a") + len(tokens) % 26


def loaded(runtime: DoubleRuntime, *, chat_template: bool = True) -> Loaded:
    return Loaded(runtime, DoubleTokenizer(chat_template), frozenset({END}))
