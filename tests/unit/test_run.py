"""A run of the tiers says what ran and what did not, and is green only if nothing is hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run import Outcome, Suite, read, run, run_all

REPORT = (
    '<testsuites><testsuite tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}"/></testsuites>'
)


def report(folder: Path, tests: int, failures: int = 0, errors: int = 0, skipped: int = 0) -> Path:
    file = folder / "report.xml"
    file.write_text(REPORT.format(tests=tests, failures=failures, errors=errors, skipped=skipped))
    return file


def test_a_tier_is_one_line(tmp_path: Path) -> None:
    outcome = read("unit", report(tmp_path, tests=123), seconds=45.2, trouble="")
    assert str(outcome) == "tier unit: 123 passed in 45s"
    assert outcome.is_good(require_all=True)


def test_errors_of_fixtures_count_as_failures(tmp_path: Path) -> None:
    outcome = read("node", report(tmp_path, tests=10, failures=1, errors=2, skipped=3), seconds=60, trouble="")
    assert str(outcome) == "tier node: 4 passed, 3 failed, 3 skipped in 60s"
    assert not outcome.is_good(require_all=False)


def test_a_run_without_a_report_has_failed(tmp_path: Path) -> None:
    outcome = read("unit", tmp_path / "none.xml", seconds=1, trouble="stopped at its limit of 1200s")
    assert str(outcome) == "tier unit: 0 passed in 1s: stopped at its limit of 1200s"
    assert not outcome.is_good(require_all=False)


def test_a_tier_that_the_machine_cannot_run_is_named_with_the_reason() -> None:
    outcome = run(Suite(name="node", arguments=(), limit=1, obstacle=lambda: "not root; run with sudo"))
    assert str(outcome) == "tier node: left out: not root; run with sudo"


@pytest.mark.parametrize(
    "outcome", [Outcome(tier="node", trouble="not root", left_out=True), Outcome(tier="unit", passed=9, skipped=1)]
)
def test_what_was_not_looked_at_is_a_failure_where_all_is_required(outcome: Outcome) -> None:
    assert outcome.is_good(require_all=False)
    assert not outcome.is_good(require_all=True)


def test_lanes_run_side_by_side_and_each_tier_is_shown_whole(capfd: pytest.CaptureFixture[str]) -> None:
    tiers = [
        Suite(name="first", arguments=("--collect-only", "tests/golden"), limit=60, lane="waiting"),
        Suite(name="second", arguments=("--collect-only", "tests/no-such-folder"), limit=60, lane="computing"),
    ]
    outcomes = run_all(tiers)
    assert [outcome.tier for outcome in outcomes] == ["first", "second"]
    assert outcomes[1].trouble == "pytest ended with status 4"
    shown = capfd.readouterr().out
    for name in ("first", "second"):
        assert f"--- tier {name} runs beside another; its output follows when it ends" in shown
    _, second = shown.split("--- tier second\n")
    assert "no-such-folder" in second.split("--- tier first\n")[0]
