"""Text to tokens and back, and conversations to prompts: what the endpoints need of a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

JsonObject = Mapping[str, object]


class ChatTemplateError(ValueError):
    """The conversation can not become a prompt: no template, or the template refuses it; the text says why."""


class Tokenizer(Protocol):
    """Thread-safe; `decode` is cheap enough for every token."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a plain prompt, with the special tokens that the model expects around it."""

    def encode_chat(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None, settings: JsonObject
    ) -> list[int]:
        """Tokens of a conversation, ready for the assistant's turn; `settings` are variables of the template's own.

        Raises `ChatTemplateError`.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """Text without special tokens; bytes that are no UTF-8 become U+FFFD."""

    def token_bytes(self, token: int) -> bytes:
        """What one token stands for, a special one for its name; empty for ids that the tokenizer does not know."""

    @property
    def special_tokens(self) -> frozenset[int]:
        """Those that `decode` leaves out."""
