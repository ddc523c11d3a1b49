"""What a token stands for, in every spelling that tokenizer files have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from tests.models import tiny_tokenizer
from trtllm_engine.serve.folder_tokenizer import FolderTokenizer
from trtllm_engine.serve.tokenizer import ChatTemplateError

TEXT = "the red engine: Héllo 🙂\tis\n"


def test_the_tokens_of_a_text_stand_for_its_bytes_in_a_byte_level_vocabulary(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    tokenizer = FolderTokenizer(tmp_path)
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(TEXT))).decode() == TEXT


def test_special_tokens_are_told_apart_and_have_their_names(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    tokenizer = FolderTokenizer(tmp_path)
    names = {tokenizer.token_bytes(token) for token in tokenizer.special_tokens}
    assert names == {b"<|endoftext|>", b"<|im_start|>", b"<|im_end|>"}


def test_an_id_beyond_the_vocabulary_stands_for_nothing(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    assert FolderTokenizer(tmp_path).token_bytes(100_000) == b""


@pytest.mark.parametrize(
    ("token", "text"), [("▁the", b" the"), ("<0xE2>", b"\xe2"), ("é", "é".encode()), ("<tool>", b"<tool>")]
)
def test_sentencepiece_s_spelling_is_understood(tmp_path: Path, token: str, text: bytes) -> None:
    vocabulary = {"<unk>": 0, "▁the": 1, "<0xE2>": 2, "é": 3}
    rust = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    rust.add_tokens([AddedToken("<tool>", special=False)])
    rust.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    fast = PreTrainedTokenizerFast(tokenizer_object=rust)  # type: ignore[no-untyped-call]
    fast.save_pretrained(tmp_path)
    assert FolderTokenizer(tmp_path).token_bytes(rust.get_vocab()[token]) == text


def test_a_conversation_becomes_what_transformers_makes_of_it(tmp_path: Path) -> None:
    original = tiny_tokenizer()
    original.chat_template = (
        "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
        "{% for message in messages %}{{ message.content }}{% endfor %}{% if thinking %} slow{% endif %}"
    )
    original.save_pretrained(tmp_path)
    messages: list[dict[str, str]] = [{"role": "user", "content": "the red engine"}]
    tools: list[Any] = [{"type": "function", "function": {"name": "f"}}]
    expected = original.apply_chat_template(messages, tools=tools, thinking=True, tokenize=False)
    tokenizer = FolderTokenizer(tmp_path)
    tokens = tokenizer.encode_chat(messages, tools, {"thinking": True})
    assert tokenizer.decode(tokens) == expected
    assert str(expected).endswith("the red engine slow")


@pytest.mark.parametrize("name", ["chat_template", "tokenize", "tools"])
def test_a_client_sets_the_template_s_variables_and_nothing_of_the_library(tmp_path: Path, name: str) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ChatTemplateError, match=f"chat_template_kwargs: '{name}' is no variable"):
        FolderTokenizer(tmp_path).encode_chat([{"role": "user", "content": "x"}], None, {name: "x"})
