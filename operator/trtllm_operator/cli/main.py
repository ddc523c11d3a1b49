"""The command line: its commands and their options. What a command does is imported when it runs, not before."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Final

import typer

from .. import __version__
from .failure import BadInput
from .format import COMPLETE, Completed, Format

INTERRUPTED: Final = 130
"""Exit code of a program that an interrupt ended, as shells have it."""

app = typer.Typer(
    name="llmd",
    help="Check, convert and plan LLMDeployments and LLMEngines without a cluster; look at them and steer them in one.",
    epilog="Exit code: 0 fine, 1 something is wrong, 2 the command line is.",
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


Kubeconfig = Annotated[
    str | None, typer.Option(metavar="FILE", help="How to reach the cluster; by default KUBECONFIG.")
]
Where = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace; by default the context's.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of an LLMDeployment.")]


def run() -> None:
    """Entry point of `llmd` and `kubectl llmd`."""
    if COMPLETE in os.environ:
        from .completion import prepare

        prepare()
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
    goes to standard output; what was renamed, changed its meaning, has no place or is refused by this version is named
    on standard error.
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


@app.command("status", short_help="Say what runs, what is wrong, and why.")
def status_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of an LLMDeployment; without it a table of all.")
    ] = None,
    namespace: Where = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="The table of all namespaces; not with a name.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on looking; without a terminal a line for each change.")
    ] = False,
    output: Output = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say what runs, what is wrong, and why: a table of LLMDeployments, or one with its engine, replicas and pods."""
    if name is not None and everywhere:
        raise typer.BadParameter("a name is looked up in one namespace: leave out --all-namespaces, or use -n")
    if output is not None and watch:
        raise typer.BadParameter("--output is one answer: leave out --watch")
    from .status import status

    _end(
        lambda: status(
            name, namespace=namespace, everywhere=everywhere, watch=watch, kubeconfig=kubeconfig, output=output
        )
    )


@app.command("retry", short_help="Have what was given up tried once more.")
def retry_command(name: Name, namespace: Where = None, kubeconfig: Kubeconfig = None) -> None:
    """Have what was given up tried once more: a revision that was rolled back, a failed build, a failed fetch."""
    from .steering import retry

    _end(lambda: retry(name, namespace=namespace, kubeconfig=kubeconfig))


@app.command("refresh", short_help="Take what the operator has by now.")
def refresh_command(name: Name, namespace: Where = None, kubeconfig: Kubeconfig = None) -> None:
    """Have its spec resolved anew, with the defaults, images and toolchains that the operator has by now.

    Without it they count for a changed spec only: an operator that was upgraded changes no pod.
    """
    from .steering import refresh

    _end(lambda: refresh(name, namespace=namespace, kubeconfig=kubeconfig))


@app.command("pause", short_help="Let a changed spec wait.")
def pause_command(name: Name, namespace: Where = None, kubeconfig: Kubeconfig = None) -> None:
    """Let a changed spec wait (strategy.paused). What runs is kept running and scaled."""
    from .steering import set_paused

    _end(lambda: set_paused(name, True, namespace=namespace, kubeconfig=kubeconfig))


@app.command("resume", short_help="Go on after a pause.")
def resume_command(name: Name, namespace: Where = None, kubeconfig: Kubeconfig = None) -> None:
    """Go on after a pause."""
    from .steering import set_paused

    _end(lambda: set_paused(name, False, namespace=namespace, kubeconfig=kubeconfig))


@app.command("rollback", short_help="Go back to an old revision.")
def rollback_command(
    name: Name,
    to: Annotated[
        str | None,
        typer.Option(metavar="REVISION", help="Its hash, or how that begins; without it the one before."),
    ] = None,
    namespace: Where = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write what an old revision was into the spec, as an edit would; replicas and strategy stay as they are.

    Where Argo CD or Flux keeps the object as it is in Git, the patch for Git is printed instead.
    """
    from .rollback import rollback

    _end(lambda: rollback(name, to, namespace=namespace, kubeconfig=kubeconfig))


@app.command("logs", short_help="Print what its pods say, of all ranks.")
def logs_command(
    name: Name,
    build: Annotated[bool, typer.Option("--build", help="Of the pods that build its engine.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Of its servers.")] = False,
    fetch: Annotated[bool, typer.Option("--fetch", help="Of the pod that fetches or inspects its model.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the pods end.")] = False,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the run before the last restart.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, metavar="LINES", help="Only the last lines of each pod.")] = None,
    namespace: Where = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print what the pods say, of all ranks, each line with its pod before it.

    Without a choice: of the servers; before there are any, of the build; before that, of the fetch.
    """
    if build + serve + fetch > 1:
        raise typer.BadParameter("choose one of --build, --serve and --fetch")
    from .logs import Which, logs

    chosen = Which.BUILD if build else Which.SERVE if serve else Which.FETCH if fetch else None
    _end(
        lambda: logs(
            name,
            which=chosen,
            follow=follow,
            previous=previous,
            tail=tail,
            namespace=namespace,
            kubeconfig=kubeconfig,
        )
    )


@app.command("events", short_help="Print what was told about it, its engine and pods.")
def events_command(name: Name, namespace: Where = None, kubeconfig: Kubeconfig = None) -> None:
    """Print what Kubernetes and the operator told about it, its engine and their pods, oldest first."""
    from .events import events

    _end(lambda: events(name, namespace=namespace, kubeconfig=kubeconfig))


@app.command("chat", short_help="Talk to it.")
def chat_command(
    name: Name,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="What the model is told first.")] = None,
    namespace: Where = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Talk to it: a line is a turn, the end of the input ends it. kubectl, which must be in PATH, forwards the port."""
    from .chat import chat

    _end(lambda: chat(name, system=system, namespace=namespace, kubeconfig=kubeconfig))


@app.command("doctor", short_help="Check the cluster, and say what to do.")
def doctor_command(config: Config = None, kubeconfig: Kubeconfig = None) -> None:
    """Check that the cluster has what is needed, and say what to do where it has not.

    Definitions, operator, webhook, nodes and their GPUs, storage. What you may not read is not judged.
    """
    from .doctor import doctor

    _end(lambda: doctor(config=config, kubeconfig=kubeconfig))


@app.command("completion", short_help="Print the script that completes commands in a shell.")
def completion_command(
    shell: Annotated[Completed, typer.Argument(metavar="SHELL", help="bash, zsh, fish, or kubectl for kubectl llmd.")],
) -> None:
    """Print the script that completes commands and options in a shell.

    bash: source <(llmd completion bash). zsh: the same, after compinit. fish: llmd completion fish | source. For
    kubectl llmd: llmd completion kubectl, as an executable kubectl_complete-llmd in PATH.
    """
    from .completion import completion

    _end(lambda: completion(shell))


def _end(work: Callable[[], int]) -> None:
    """Exit with the command's code; a file that cannot be used is told on standard error."""
    try:
        code = work()
    except BadInput as error:
        typer.echo(f"llmd: {error}", err=True)
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.stdout.flush()
    raise typer.Exit(code)
