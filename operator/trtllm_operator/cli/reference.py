"""The page about the command line, made from the commands: `python -m trtllm_operator.cli.reference FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer.main

from .main import app

FILE: Final = "llmd.md"
HEAD: Final = """\
# llmd

Generated from the commands by `python -m trtllm_operator.cli.reference docs/reference`; do not edit.

`llmd` is installed with the operator's package, also as `kubectl-llmd`, so that `kubectl llmd` works. Results go to
standard output, remarks to standard error. `NO_COLOR` switches colours off. `-` as a file is standard input. A command
that needs a cluster reaches it as kubectl does: by `--kubeconfig`, by `KUBECONFIG`, or as the pod that it runs in.

| Exit code | Means |
|---|---|
| 0 | fine |
| 1 | something is wrong: with the input, with the cluster, or what was asked for could not be done |
| 2 | the command line is wrong |
| 130 | interrupted, as `-w` and `-f` end |

## Answers for machines

`-o json` and `-o yaml` of `validate` and `plan` print one object per file with one object of ours:

| Field | Holds |
|---|---|
| `kind`, `name`, `file` | which object |
| `valid` | true: nothing is refused |
| `errors` | `path`, `code`, `message`; `hint` and `rule` where there are any; `line` and `column` in the file |
| `warnings` | `path`, `message`; `rule` where there is one; `line` and `column` |
| `adjustments` | `path`, `from` (null: not written), `to`, `reason`, `rule` |
| `resolved` | the effective arguments; null while they are not known, or refused |
| `plan`, `memory` | of `plan` alone |

With several objects it is `{"valid": ..., "documents": [...]}`, with one such object for each; documents of other kinds
are skipped.
"""


def page() -> str:
    """The whole page."""
    group: Any = typer.main.get_command(app)
    return "\n".join([HEAD, *(line for name, command in group.commands.items() for line in _command(name, command))])


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"## llmd {name}\n"
    yield f"{command.help.strip()}\n"
    yield "| Argument or option | Meaning |\n|---|---|"
    for parameter in command.params:
        if parameter.name == "help":
            continue
        is_option = parameter.param_type_name == "option"
        label = ", ".join(f"`{text}`" for text in parameter.opts) if is_option else f"`{parameter.metavar}`"
        value = f" {parameter.metavar or 'json or yaml'}" if is_option and not parameter.is_flag else ""
        default = f" Default: {parameter.default}." if is_option and isinstance(parameter.default, str) else ""
        yield f"| {label}{value} | {parameter.help}{default} |".replace("FILE | --", "FILE \\| --")
    yield ""


if __name__ == "__main__":
    (Path(sys.argv[1]) / FILE).write_text(page())
