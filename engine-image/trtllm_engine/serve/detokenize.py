"""Tokens to text, one token at a time, without ever showing half a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

REPLACEMENT: Final = "\ufffd"
"""What decoders write for bytes that are not UTF-8 (yet)."""

MAX_HELD_TOKENS: Final = 32
"""A character has at most four bytes; after this many tokens without a clean end the text is no UTF-8 at all."""


class Detokenizer:
    """Turns a growing list of tokens into text deltas whose concatenation is the decoded whole.

    A token's text depends on its neighbours (leading spaces, bytes of one character), so each delta is the
    difference between two decodings of a short window, and the window starts at tokens that were already shown.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._context = 0
        """First token of the window."""
        self._shown = 0
        """First token whose text was not given out yet."""

    def push(self, token: int) -> str:
        """The text that this token completes; empty while the last character is still incomplete."""
        self._tokens.append(token)
        text = self._pending()
        if not text:
            return ""
        if text.endswith(REPLACEMENT) and len(self._tokens) - self._shown < MAX_HELD_TOKENS:
            return ""
        self._context, self._shown = self._shown, len(self._tokens)
        return text

    def flush(self) -> str:
        """The rest at the end of the stream; a character that was cut in the middle is dropped."""
        text = self._pending().rstrip(REPLACEMENT)
        self._context = self._shown = len(self._tokens)
        return text

    def _pending(self) -> str:
        before = self._decode(self._tokens[self._context : self._shown])
        return self._decode(self._tokens[self._context :])[len(before) :]
