"""`llmd completion`: what a shell needs to complete commands and options. The work is Typer's."""

from __future__ import annotations

import sys
from typing import Final

# Typer keeps its completion for its own options, which would weigh on every start.
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

from .format import COMPLETE, Completed

PROGRAM: Final = "llmd"
KUBECTL: Final = f"""\
#!/bin/sh
# kubectl runs this with the words after `kubectl llmd`. :4 says that nothing but these is wanted.
COMP_WORDS="{PROGRAM} $*" COMP_CWORD=$# {COMPLETE}=complete_bash {PROGRAM}
echo :4
"""


def completion(shell: Completed) -> int:
    """Print the script."""
    if shell is Completed.KUBECTL:
        sys.stdout.write(KUBECTL)
        return 0
    script = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE, shell=shell.value)
    sys.stdout.write(f"{script}\n")
    return 0


def prepare() -> None:
    """Have Typer know the shells before it answers one."""
    completion_init()
