"""What ends a command early."""

from __future__ import annotations

from typing import ClassVar


class BadInput(Exception):
    """A file that cannot be used at all; the text says which, where in it, and what to do."""

    exit_code: ClassVar[int] = 1


class BadUsage(BadInput):
    """A command line that lacks something."""

    exit_code: ClassVar[int] = 2
