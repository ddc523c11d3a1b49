"""What can be asked for: an answer for machines in place of text, a script for a shell."""

from __future__ import annotations

import enum
from typing import Final


class Format(enum.StrEnum):
    """Of `--output`."""

    JSON = "json"
    YAML = "yaml"


COMPLETE: Final = "_LLMD_COMPLETE"
"""Set by a shell that asks for completions: Typer answers in place of the command."""


class Completed(enum.StrEnum):
    """Who completes commands: of `completion`."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    KUBECTL = "kubectl"
