"""What the harness is doing, for the eye: one line per step with its duration."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator


@contextlib.contextmanager
def step(title: str) -> Iterator[None]:
    """Announce a step on standard error; on a terminal its line is completed in place."""
    live = sys.stderr.isatty()
    started = time.monotonic()
    if live:
        print(f"  … {title}", end="", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        _finish("✗", title, started, live)
        raise
    _finish("✓", title, started, live)


def _finish(mark: str, title: str, started: float, live: bool) -> None:
    print(f"{chr(13) if live else ''}  {mark} {title}  {time.monotonic() - started:.1f}s", file=sys.stderr, flush=True)
