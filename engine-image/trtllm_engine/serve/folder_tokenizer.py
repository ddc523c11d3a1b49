"""The engine folder's tokenizer: the text part by the tokenizers library, the chat template by transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from jinja2 import TemplateError
from tokenizers import Tokenizer as RustTokenizer
from transformers import PreTrainedTokenizerFast

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.serve.tokenizer import ChatTemplateError, JsonObject

TOKENIZER_FILE: Final = "tokenizer.json"


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

    def encode_chat(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None) -> list[int]:
        if not self._chat.chat_template:
            raise ChatTemplateError(
                "this model has no chat template; use /v1/completions, or add chat_template.jinja to the model"
            )
        try:
            prompt = self._chat.apply_chat_template(
                list(messages), tools=list(tools) if tools else None, tokenize=False, add_generation_prompt=True
            )
            ids: list[int] = self._rust.encode(str(prompt), add_special_tokens=False).ids
        except (TemplateError, ValueError, TypeError, KeyError) as error:
            raise ChatTemplateError(f"the model's chat template refuses this conversation: {error}") from error
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._rust.decode(tokens, skip_special_tokens=True)
        return text
