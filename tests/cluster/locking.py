"""One maker at a time, across processes."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Hold an advisory lock on a file (made if need be); it is freed also if the holder is killed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
