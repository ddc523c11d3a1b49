"""Programs that a step runs: output in a log, the last line on the screen, an end when the step must end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tests.demo.steps import Cancelled, Failure, Progress

TAIL: Final = 25
"""Lines of a log that a failure shows."""
ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run(
    progress: Progress,
    argv: Sequence[str | Path],
    log: Path,
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    advice: str = "",
) -> None:
    """Run a program to its end.

    It gets a session of its own, so that a Ctrl-C at the terminal reaches it once, from here. Raises `Failure`
    with the log's end if it exits with anything but 0, `Cancelled` if the run is over.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(word) for word in argv],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        reader = threading.Thread(target=_copy, args=(process, sink, progress), daemon=True)
        reader.start()
        try:
            while process.poll() is None:
                progress.check()
                _wait(process, 0.1)
        except Cancelled:
            end(process)
            raise
        finally:
            reader.join(5)
    if process.returncode:
        raise Failure(
            f"{' '.join(str(word) for word in argv[:6])} … ended with status {process.returncode}",
            tail=tail(log),
            advice=advice or f"the whole log is {log}",
        )


def end(process: subprocess.Popen[bytes], seconds: float = 20) -> None:
    """Interrupt a program's whole session, and kill it if that does not help."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        if _wait(process, seconds):
            return


def tail(log: Path, lines: int = TAIL) -> str:
    """The end of a log, without the codes that colour terminals."""
    if not log.exists():
        return ""
    return "\n".join(ESCAPES.sub("", log.read_text(errors="replace")).splitlines()[-lines:])


def _copy(process: subprocess.Popen[bytes], sink: IO[bytes], progress: Progress) -> None:
    assert process.stdout is not None
    for raw in process.stdout:
        sink.write(raw)
        if line := ESCAPES.sub("", raw.decode(errors="replace")).strip():
            progress.detail = line


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
