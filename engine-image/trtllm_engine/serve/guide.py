"""Answers that follow a JSON schema: at each token only those that keep to the grammar are possible."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection
from typing import Any, Final

import torch

from trtllm_engine.serve.shaping import Shaper
from trtllm_engine.serve.tokenizer import JsonObject, Tokenizer

ANY_OBJECT: Final[JsonObject] = {"type": "object"}
"""The schema of `json_object`."""

CONTROL_CHARACTERS: Final = 0x20
"""Bytes below are such."""


class SchemaError(ValueError):
    """No grammar can be made from this schema; the text says why."""


class Guide:
    """Grammars over one model's vocabulary. Thread-safe; what was compiled once is kept by the library."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_tokens: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._end_tokens = end_tokens
        self._lock = threading.Lock()
        self._compiler: Any = None

    def compile(self, schema: JsonObject, *, strict: bool) -> Callable[[], Shaper]:
        """What makes the shaper of one answer. `strict`: nothing that the schema does not name.

        Takes from milliseconds to seconds, the first time longest. Raises `SchemaError`.

        Whitespace is fixed: a model that may write as much of it as it likes can write nothing else until its last
        token.
        """
        if not self._end_tokens:
            raise SchemaError("this model names no end-of-sequence token, so a guided answer could not end")
        with self._lock:
            self._compiler = self._compiler or self._make_compiler()
        try:
            compiled = self._compiler.compile_json_schema(json.dumps(schema), any_whitespace=False, strict_mode=strict)
        except (RuntimeError, ValueError, TypeError) as error:
            raise SchemaError(str(error).strip().splitlines()[-1]) from error
        return lambda: _Grammar(compiled, self._vocab_size)

    def _make_compiler(self) -> Any:
        """Imported here: it takes seconds, and most servers never need it."""
        import xgrammar

        texts = [self._usable(token) for token in range(self._vocab_size)]
        tokens = xgrammar.TokenizerInfo(
            texts, xgrammar.VocabType.RAW, vocab_size=self._vocab_size, stop_token_ids=sorted(self._end_tokens)
        )
        return xgrammar.GrammarCompiler(tokens, max_threads=1)

    def _usable(self, token: int) -> bytes:
        """What a token adds to an answer; empty: it never may.

        JSON has control characters only as escapes or as whitespace, which is fixed here; yet the library's strings of
        limited length would take them.
        """
        text = b"" if token in self._tokenizer.special_tokens else self._tokenizer.token_bytes(token)
        return b"" if any(byte < CONTROL_CHARACTERS for byte in text) else text


class _Grammar:
    """Where one answer is in its grammar."""

    def __init__(self, compiled: Any, vocab_size: int) -> None:
        import xgrammar

        self._library = xgrammar
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._mask = xgrammar.allocate_token_bitmask(1, vocab_size)

    def apply(self, logits: torch.Tensor) -> None:
        """On a GPU with torch's own kernels: the library's others are compiled on the spot, by a compiler not there."""
        self._matcher.fill_next_token_bitmask(self._mask)
        self._library.apply_token_bitmask_inplace(
            logits.unsqueeze(0),
            self._mask.to(logits.device),
            backend="cpu" if logits.device.type == "cpu" else "torch_native",
        )

    def accept(self, token: int) -> None:
        """A token from masked logits is always in the grammar."""
        self._matcher.accept_token(token)
