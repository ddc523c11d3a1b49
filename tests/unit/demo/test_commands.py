"""A program that the demo runs leaves its words in a log, and ends when the demo does."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from tests.demo import commands
from tests.demo.steps import Cancelled, Failure, Progress


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def test_the_last_line_is_shown_and_all_lines_are_kept(tmp_path: Path) -> None:
    progress = Progress()
    commands.run(progress, python("print('one'); print('\\x1b[32mtwo\\x1b[0m')"), tmp_path / "log", folder=tmp_path)
    assert progress.detail == "two"
    assert commands.tail(tmp_path / "log") == "one\ntwo"


def test_a_program_that_fails_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="ended with status 3") as caught:
        commands.run(
            Progress(), python("print('no space left'); raise SystemExit(3)"), tmp_path / "log", folder=tmp_path
        )
    assert caught.value.tail == "no space left"


def test_a_cancelled_step_interrupts_its_program(tmp_path: Path) -> None:
    progress = Progress()
    code = "import time\ntry:\n    print('ready'); time.sleep(60)\nexcept KeyboardInterrupt:\n    print('cleaned up')"

    def cancel_once_it_runs() -> None:
        while progress.detail != "ready":
            progress.cancelled.wait(0.01)
        progress.cancelled.set()

    threading.Thread(target=cancel_once_it_runs, daemon=True).start()
    with pytest.raises(Cancelled):
        commands.run(progress, python(code), tmp_path / "log", folder=tmp_path)
    assert commands.tail(tmp_path / "log") == "ready\ncleaned up"
