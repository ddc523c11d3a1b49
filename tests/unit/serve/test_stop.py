"""Stop strings never show, not even in part, wherever the token boundaries are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trtllm_engine.serve.stop import StopMatcher

TEXTS = st.text(alphabet="abc", max_size=24)
STOPS = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=4)


def stream(chunks: list[str], stops: list[str]) -> tuple[str, bool]:
    matcher = StopMatcher(stops)
    text = "".join([matcher.push(chunk) for chunk in chunks])
    return text + matcher.flush(), matcher.stopped


def test_text_before_the_stop_string_is_kept_and_the_rest_is_dropped() -> None:
    assert stream(["one END two"], ["END"]) == ("one ", True)


def test_a_stop_string_across_chunks_is_found() -> None:
    assert stream(["one E", "N", "D two"], ["END"]) == ("one ", True)


def test_text_that_may_become_a_stop_string_is_held_back_until_that_is_decided() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.push("one EN") == "one "
    assert matcher.push("T") == "ENT"


def test_what_was_held_back_comes_out_at_the_end() -> None:
    assert stream(["one EN"], ["END"]) == ("one EN", False)


def test_after_the_stop_string_nothing_comes() -> None:
    matcher = StopMatcher(["."])
    assert [matcher.push("a."), matcher.push("b"), matcher.flush()] == ["a", "", ""]


def test_without_stop_strings_everything_passes_at_once() -> None:
    assert StopMatcher([]).push("text") == "text"


@given(TEXTS, STOPS, st.data())
def test_the_chunks_do_not_matter(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert stream(chunks, stops) == stream([text], stops)


@given(TEXTS, STOPS)
def test_no_stop_string_is_ever_in_what_is_shown(text: str, stops: list[str]) -> None:
    shown, stopped = stream(list(text), stops)
    assert not any(stop in shown for stop in stops)
    assert text.startswith(shown)
    assert stopped == any(stop in text for stop in stops)
