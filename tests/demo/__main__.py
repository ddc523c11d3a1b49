"""`python -m tests.demo up` runs the demonstration, `down` removes what it made. `CLUSTER=current`: on your cluster."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from tests.cluster.cluster import Cluster
from tests.cluster.errors import HarnessError
from tests.demo.scenario import INSTALL, OUTPUT, ROOT, Facts, Scenario
from tests.demo.screen import duration, follow
from tests.demo.steps import Failure, Run
from tests.demo.targets import NAME, NAMESPACE, CurrentCluster, OwnCluster, Target

REPORT: Final = ROOT / "build" / "demo.json"
INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells have it."""


def up(target: Target, console: Console) -> int:
    """Run all steps and print the answer. What is done already is found, not done again."""
    scenario = Scenario(target)
    run = Run(scenario.steps())
    run.start()
    try:
        follow(run, scenario.board, console)
    except KeyboardInterrupt:
        console.print("\nstopping …")
        run.cancel()
        settle(run)
        console.print("Stopped. `make demo` goes on from here, `make demo-down` removes what is there.")
        return INTERRUPTED
    except Exception as failure:
        explain(failure, console)
        return 1
    assert scenario.facts is not None
    write_report(scenario.facts, run)
    celebrate(scenario.facts, target, run, console)
    return 0


def settle(run: Run) -> None:
    """Let running steps end their programs; whatever they say now is of no interest."""
    with contextlib.suppress(Exception):
        run.wait(90)


def explain(failure: Exception, console: Console) -> None:
    """What failed, the end of the log, and what to do."""
    match failure:
        case Failure():
            words, tail, advice = str(failure), failure.tail, failure.advice
        case HarnessError():
            words, tail, advice = str(failure), "", ""
        case _:
            words = f"{type(failure).__name__}: {failure}"
            tail, advice = "".join(traceback.format_exception(failure)[-6:]), ""
    console.print(f"\n[bold red]✗[/] {escape(words)}", highlight=False)
    if tail:
        console.print(Panel(Text(tail.rstrip()), border_style="dim"))
    console.print(escape(advice or f"the logs of the steps are in {OUTPUT}"), highlight=False)
    console.print("`make demo` goes on from here; `make demo-down` removes what is there.")


def write_report(facts: Facts, run: Run) -> None:
    """build/demo.json: seconds by step, question and answer, what was built."""
    report = {"seconds": {**run.seconds(), "total": round(run.now - run.began, 1)}, **facts.to_dict()}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def celebrate(facts: Facts, target: Target, run: Run, console: Console) -> None:
    """The answer, what computed it, and how to look around."""
    answer, kubectl = facts.answer, target.kubectl()
    console.print(
        Panel(
            f"[dim]question[/]  {escape(answer.question)}\n"
            f"[dim]answer[/]    [bold]{escape(answer.text)}[/]\n"
            f"[dim]          {answer.tokens} tokens in {answer.seconds:g}s, computed on the {answer.device.upper()}\n"
            f"          by {escape(answer.fingerprint)}[/]\n\n"
            f"[dim]A TensorRT-RTX plan of {facts.plan_bytes / 2**20:.0f} MiB for GPUs of compute capability "
            f"{facts.plan_target}\nwas built beside it: built, not executed.[/]",
            title=f"ready in {duration(run.now - run.began)}",
            border_style="green",
        )
    )
    lines = [
        *([f"export KUBECONFIG={kubectl.kubeconfig}"] if kubectl.kubeconfig else []),
        *([] if shutil.which("kubectl") else [f"export PATH=$PATH:{Path(kubectl.program).parent}"]),
        f"kubectl get llmd,llme -n {NAMESPACE}",
        f"kubectl describe llmd {facts.deployment} -n {NAMESPACE}",
        f"kubectl get jobs,statefulsets,services,pods,pvc -n {NAMESPACE}",
        f"kubectl logs -n {NAMESPACE} {facts.deployment}-0-0",
        f"kubectl port-forward -n {NAMESPACE} service/{facts.deployment} 8000",
        "kubectl explain llmd.spec",
    ]
    console.print("Look around:", style="bold")
    console.print("\n".join(f"  {line}" for line in lines), markup=False, highlight=False, soft_wrap=True)
    console.print(f"Details are in {REPORT.relative_to(ROOT)}. To remove everything: make demo-down")


def down(target: Target, console: Console) -> int:
    """Remove what `up` made: the whole cluster, or on a user's cluster the demo's namespace and its operator."""
    if isinstance(target, OwnCluster):
        if (cluster := Cluster.find(NAME)) is not None:
            console.print(f"removing cluster {NAME!r} …")
            cluster.down()
    else:
        kubectl = target.kubectl()
        ours = Scenario(target).is_ours(kubectl)
        console.print(f"removing namespace {NAMESPACE!r} and what is in it …")
        kubectl.text("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=240s")
        if ours:
            kubectl.text("delete", "--ignore-not-found", "-f", "-", stdin=INSTALL.read_text())
    shutil.rmtree(OUTPUT, ignore_errors=True)
    REPORT.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it holds something else
        REPORT.parent.rmdir()
    console.print("The demo is gone; what it built stays in the cache, so that the next one is quick.")
    return 0


def main() -> int:
    """Exit status: 0 well, 1 failed, 2 wrong usage, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("command", choices=("up", "down"), nargs="?", default="up")
    command = parser.parse_args().command
    where = os.environ.get("CLUSTER", "own")
    if where not in ("own", "current"):
        print(f"error: CLUSTER={where!r}; allowed are 'own' (the default) and 'current'", file=sys.stderr)
        return 2
    target: Target = OwnCluster() if where == "own" else CurrentCluster.of_environment()
    console = Console()
    # A termination ends the run as Ctrl-C does: programs that steps have started are ended, too.
    # A shell that starts us in the background has SIGINT ignored, and what we start would inherit that.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        return up(target, console) if command == "up" else down(target, console)
    except (Failure, HarnessError) as failure:
        explain(failure, console)
        return 1


if __name__ == "__main__":
    sys.exit(main())
