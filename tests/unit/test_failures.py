"""The table of failures that others had names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
TABLE: Final = (TESTS.parent / "docs" / "design" / "failures.md").read_text()
ROWS: Final = re.findall(r"^\| (\d+) \| (.+) \|$", TABLE, re.MULTILINE)


def test_every_failure_has_a_row() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 60))


@pytest.mark.parametrize(("number", "row"), ROWS, ids=[number for number, _ in ROWS])
def test_every_row_names_a_test_that_exists(number: str, row: str) -> None:
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row)
    assert named, f"row {number} names no test"
    for file, test in named:
        defined = re.findall(r"^(?:async )?def (test_\w+)", (TESTS / file).read_text(), re.MULTILINE)
        assert test in defined, f"row {number}: {file} has no {test}"
