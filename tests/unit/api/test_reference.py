"""The reference pages are what the models say, and leave no field out."""

from pathlib import Path

import pytest

from trtllm_operator.api import reference
from trtllm_operator.api.left_out import LEFT_OUT
from trtllm_operator.api.llm_args import LlmArgs, iter_fields

PAGES = reference.pages()
CHECKED_IN = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_checked_in_page_is_what_the_models_say(name: str) -> None:
    assert (CHECKED_IN / name).read_text() == PAGES[name], (
        "run `python -m trtllm_operator.api.reference docs/reference`"
    )


def test_every_argument_has_a_row_with_its_default_and_phase() -> None:
    rows = PAGES["llmdeployment.md"].splitlines()

    for fact in iter_fields(LlmArgs):
        (*_, alias) = fact.path.split(".")
        told = [row for row in rows if row.startswith(f"| `{alias}` |") and f" | {fact.phase} | " in row]
        assert told, fact.path
        if isinstance(fact.default, int | float | bool) and not fact.default:
            assert any("| `false` |" in row or f"| `{fact.default}` |" in row for row in told), fact.path


def test_what_is_left_out_stands_with_its_reason() -> None:
    page = PAGES["llmdeployment.md"]

    assert all(f"| `{path}` | {reason} |" in page for path, reason in LEFT_OUT.items())
