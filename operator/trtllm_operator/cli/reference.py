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

`status NAME` prints one object; without a name it is `{"deployments": [...]}`, each without `groups`, `fetching` and
`building`. What is not known is null.

| Field | Holds |
|---|---|
| `name`, `namespace`, `created` | which object |
| `generation`, `observedGeneration` | of the spec, and the one that everything else is about |
| `ready` | true: all that this generation asks for is there and serves |
| `phase` | one word, as in the column |
| `blocked` | null, or why it is not ready: `reason`, `message`, `since`, `needsPerson` (true: it waits for somebody) |
| `problems` | why the spec is refused: `path`, `code`, `message`; `hint` and `rule` where there are any |
| `model`, `url` | what is served, and where |
| `replicas` | `wanted`, `existing`, `ready`, `updated` |
| `revisions` | `current` serves, `target` is the spec's, `failed` was taken back |
| `engine` | null, or `name`, `key`, `state`, `percent`, `etaSeconds` |
| `mapping` | null, or the degrees, `worldSize`, `pods`, `gpusPerPod`, `gpus` of a replica |
| `adjustments` | `field`, `to`, `reason`; `from` and `rule` where there are any |
| `groups` | replicas: `name`, `ordinal`, `revision`, `ready`, `going`, `pods` |
| `fetching`, `building` | pods at work |

A pod has `name`, `rank`, `state` (ready, done, loading, working, starting, waiting, failed or going), `text` (the same
in words), `percent`, `detail`, `node`, `restarts` and `created`.

## Completion

`source <(llmd completion bash)` in `~/.bashrc`; for zsh the same line after `compinit` in `~/.zshrc`; for fish
`llmd completion fish | source` in `~/.config/fish/config.fish`. `kubectl llmd` is completed by a program of its own, in
every shell in which kubectl is:

```
llmd completion kubectl > ~/.local/bin/kubectl_complete-llmd && chmod +x ~/.local/bin/kubectl_complete-llmd
```
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
