"""The engine folder's tokenizer: the text part by the tokenizers library, the chat template by transformers."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from jinja2 import TemplateError
from tokenizers import Tokenizer as RustTokenizer
from transformers import PreTrainedTokenizerFast

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.serve.tokenizer import ChatTemplateError, JsonObject

TOKENIZER_FILE: Final = "tokenizer.json"

BYTE_PIECE: Final = re.compile(r"<0x([0-9A-F]{2})>")
"""How SentencePiece vocabularies spell a byte that is no character."""


TAKEN: Final = frozenset(inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters) - {"kwargs"}
"""Names that mean something to the library itself: a client must not set the template, say, or what is returned."""


def _byte_alphabet() -> Mapping[str, int]:
    """The letters that byte-level vocabularies write for bytes: printable ones for themselves, others moved up."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    moved = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(moved)}


BYTE_ALPHABET: Final = _byte_alphabet()


class FolderTokenizer:
    """`tokenizer.json` for the text, transformers for the chat template in `tokenizer_config.json` or beside it."""

    def __init__(self, folder: Path) -> None:
        """Reads the folder, never the network. Raises `Failure` (CORRUPT_INPUT) naming the file."""
        file = folder / TOKENIZER_FILE
        try:
            self._rust = RustTokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises plain Exception for a missing file and for a bad one
            raise Failure(
                ExitCode.CORRUPT_INPUT, f"{TOKENIZER_FILE}: can not be read: {error}", field=TOKENIZER_FILE
            ) from error
        added = self._rust.get_added_tokens_decoder()
        self._added = {token: entry.content for token, entry in added.items()}
        self.special_tokens = frozenset(token for token, entry in added.items() if entry.special)
        self._byte_level = '"ByteLevel"' in json.dumps(json.loads(self._rust.to_str()).get("decoder"))
        self._rust.no_truncation()
        self._rust.no_padding()
        try:
            self._chat = PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
        except (OSError, ValueError, TypeError) as error:
            raise Failure(
                ExitCode.CORRUPT_INPUT,
                f"tokenizer_config.json: can not be read: {error}",
                field="tokenizer_config.json",
            ) from error

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokenizer's own end-of-sequence token, if it names one."""
        token: int | None = self._chat.eos_token_id
        return frozenset() if token is None else frozenset({token})

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._rust.encode(text).ids
        return ids

    def encode_chat(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None, settings: JsonObject
    ) -> list[int]:
        if not self._chat.chat_template:
            raise ChatTemplateError(
                "this model has no chat template; use /v1/completions, or add chat_template.jinja to the model"
            )
        if taken := sorted(settings.keys() & TAKEN):
            raise ChatTemplateError(f"chat_template_kwargs: {taken[0]!r} is no variable of the template")
        try:
            prompt = self._chat.apply_chat_template(
                list(messages),
                tools=list(tools) if tools else None,
                tokenize=False,
                add_generation_prompt=True,
                **settings,
            )
            ids: list[int] = self._rust.encode(str(prompt), add_special_tokens=False).ids
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            raise ChatTemplateError(f"the model's chat template refuses this conversation: {error}") from error
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._rust.decode(tokens, skip_special_tokens=True)
        return text

    def token_bytes(self, token: int) -> bytes:
        if (name := self._added.get(token)) is not None:
            return name.encode()
        piece: str = self._rust.id_to_token(token) or ""
        if self._byte_level and BYTE_ALPHABET.keys() >= set(piece):
            return bytes(BYTE_ALPHABET[letter] for letter in piece)
        if byte := BYTE_PIECE.fullmatch(piece):
            return bytes([int(byte[1], 16)])
        return piece.replace("\u2581", " ").encode()
