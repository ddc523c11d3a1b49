"""A stream of tokens becomes text without broken characters, and loses nothing."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.serve.doubles import END, PROMPT_END, DoubleTokenizer
from trtllm_engine.serve.detokenize import MAX_HELD_TOKENS, REPLACEMENT, Detokenizer

BYTES = DoubleTokenizer()


def utf8(text: str) -> list[int]:
    return list(text.encode())


def deltas(tokens: list[int]) -> list[str]:
    detokenizer = Detokenizer(BYTES.decode)
    return [*[detokenizer.push(token) for token in tokens], detokenizer.flush()]


def test_a_character_of_four_bytes_comes_with_its_last_byte() -> None:
    assert deltas(utf8("🙂!")) == ["", "", "", "🙂", "!", ""]


def test_a_character_that_is_cut_at_the_end_is_dropped() -> None:
    assert deltas(utf8("é🙂")[:-1]) == ["", "é", "", "", "", ""]


def test_words_whose_leading_space_depends_on_their_neighbours_keep_it() -> None:
    def sentencepiece(tokens: Sequence[int]) -> str:
        """Like Llama 2's decoder: each token starts a word, and the first space of a text is dropped."""
        return "".join(f" w{token}" for token in tokens)[1:]

    detokenizer = Detokenizer(sentencepiece)
    assert [detokenizer.push(token) for token in (1, 2, 3)] == ["w1", " w2", " w3"]


def test_text_that_is_no_utf8_at_all_is_not_held_back_for_ever() -> None:
    shown = "".join(deltas([0xFF] * (MAX_HELD_TOKENS + 1)))
    assert shown == REPLACEMENT * MAX_HELD_TOKENS


SPECIAL = chr(END) + chr(PROMPT_END)


@given(st.text(alphabet=st.characters(exclude_characters=SPECIAL + REPLACEMENT, codec="utf-8"), max_size=40))
def test_the_deltas_together_are_the_text(text: str) -> None:
    parts = deltas(utf8(text))
    assert "".join(parts) == text
    assert not any(REPLACEMENT in part for part in parts)
