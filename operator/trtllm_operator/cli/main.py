"""The command line: its commands and their options. What a command does is imported when it runs, not before."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from .. import __version__
from .failure import BadInput
from .format import Format

app = typer.Typer(
    name="llmd",
    help="Check, convert and plan LLMDeployments and LLMEngines, without a cluster or beside one. Nothing is written.",
    epilog="Exit code: 0 fine, 1 the input is bad, 2 the command line is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain text: the library that draws boxes takes longer to load than a command to run.
    rich_markup_mode=None,
)

Output = Annotated[Format | None, typer.Option("--output", "-o", help="For machines; without it text for people.")]
ModelConfig = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="A model's folder or its config.json: check against its sizes, without weights."),
]
Facts = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="What the operator found out about the model: kubectl get llmd NAME -o json."),
]
Nodes = Annotated[
    str | None, typer.Option(metavar="FILE", help="Check against these nodes: kubectl get nodes -o json.")
]
Config = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The operator's configuration; without it the defaults of an installation."),
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of an object that names none.")
]
File = Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - is standard input.")]


def run() -> None:
    """Entry point of `llmd` and `kubectl llmd`."""
    app(prog_name="llmd")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"llmd {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Options of every command: none but those that end at once."""


@app.command("validate", short_help="Say everything that is wrong with a file.")
def validate_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="YAML or JSON; - is standard input.")],
    model_config: ModelConfig = None,
    facts: Facts = None,
    nodes: Nodes = None,
    config: Config = None,
    output: Output = None,
) -> None:
    """Say everything that is wrong with the objects of a file, in one answer.

    A file may hold several documents, also of other kinds: those are skipped. With a model or nodes, what depends on
    them is checked as well.
    """
    from .validate import validate

    _end(lambda: validate(files, model_config=model_config, facts=facts, nodes=nodes, config=config, output=output))


@app.command("import", short_help="Turn options or a command line into an LLMDeployment.")
def import_command(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FILE | -- COMMAND...", help="A file (- is standard input), or the command itself."),
    ],
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="What to serve: owner/name, or a path below /models.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the object; else made of the model's.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 also for warnings and what is left out.")
    ] = False,
) -> None:
    """Turn what runs TensorRT-LLM today into an LLMDeployment.

    FILE holds options (extra_llm_api_options) or a script with one command trtllm-serve or trtllm-build. The result
    goes to standard output; what was renamed, changed its meaning or has no place is named on standard error.
    """
    from .importing import import_

    _end(lambda: import_(sources, model=model, name=name, strict=strict))


@app.command("export", short_help="Print the options file that trtllm-serve reads.")
def export_command(file: File) -> None:
    """Print the options file that trtllm-serve reads, out of an LLMDeployment.

    What is not part of the options is named on standard error.
    """
    from .exporting import export

    _end(lambda: export(file))


@app.command("render", short_help="Print the manifests that the operator would apply.")
def render_command(
    file: File,
    model_config: ModelConfig = None,
    facts: Facts = None,
    config: Config = None,
    namespace: Namespace = "default",
) -> None:
    """Print the manifests that the operator would apply for an object, in the order in which they come to be.

    What follows from the model needs its facts.
    """
    from .rendering import render

    _end(lambda: render(file, model_config=model_config, facts=facts, config=config, namespace=namespace))


@app.command("plan", short_help="Say what would happen: engine, pods, GPUs, rollout, memory.")
def plan_command(
    file: File,
    model_config: ModelConfig = None,
    facts: Facts = None,
    nodes: Nodes = None,
    context: Annotated[
        bool, typer.Option("--context", help="Compare with the cluster of the current context; it is only read.")
    ] = False,
    kubeconfig: Annotated[
        str | None, typer.Option(metavar="FILE", help="How to reach that cluster; by default KUBECONFIG.")
    ] = None,
    config: Config = None,
    namespace: Namespace = "default",
    output: Output = None,
) -> None:
    """Say what would happen for an LLMDeployment: engine, pods, GPUs, rollout, memory, and what is chosen for you."""
    from .planning import plan

    _end(
        lambda: plan(
            file,
            model_config=model_config,
            facts=facts,
            nodes=nodes,
            config=config,
            context=context,
            kubeconfig=kubeconfig,
            namespace=namespace,
            output=output,
        )
    )


def _end(work: Callable[[], int]) -> None:
    """Exit with the command's code; a file that cannot be used is told on standard error."""
    try:
        code = work()
    except BadInput as error:
        typer.echo(f"llmd: {error}", err=True)
        code = error.exit_code
    sys.stdout.flush()
    raise typer.Exit(code)
