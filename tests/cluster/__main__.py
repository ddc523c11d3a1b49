"""The command line: `python -m tests.cluster --help`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from tests.cluster.binaries import PROGRAMS, binaries, binary
from tests.cluster.cluster import Cluster
from tests.cluster.errors import HarnessError
from tests.cluster.images import build_images
from tests.cluster.prerequisites import Tier
from tests.cluster.progress import step


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    what = "Real Kubernetes clusters on this machine"
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=what)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default="dev", help="the cluster's name (default: dev)")

    up = commands.add_parser("up", parents=[named], help="start a cluster; nothing happens if it runs")
    up.add_argument("--tier", type=Tier, choices=list(Tier), default=Tier.NODE, help="with a node (default) or without")
    up.add_argument("--gpus", type=int, default=8, help="GPUs that the node advertises (default: 8)")
    up.add_argument("--scheduler", action="store_true", help="also for tier apiserver")
    up.set_defaults(run=_up)

    down = commands.add_parser("down", parents=[named], help="remove a cluster and all that it left")
    down.add_argument("--all", action="store_true", help="remove all clusters")
    down.set_defaults(run=_down)

    commands.add_parser("status", help="list the clusters and their components").set_defaults(run=_status)

    kubectl = commands.add_parser("kubectl", parents=[named], help="run kubectl as administrator: kubectl -- get pods")
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    kubectl.set_defaults(run=_kubectl)

    logs = commands.add_parser("logs", parents=[named], help="print a component's log")
    logs.add_argument("component")
    logs.set_defaults(run=_logs)

    images = commands.add_parser("images", parents=[named], help="build both images, and load them if a node runs")
    images.set_defaults(run=_images)

    build = commands.add_parser("build", help="build programs ahead of time")
    known = ", ".join([*PROGRAMS, "helm"])
    build.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {known} (default: all)")
    build.set_defaults(run=_build)
    return parser


def _found(name: str) -> Cluster:
    cluster = Cluster.find(name)
    if cluster is None:
        known = ", ".join(each.name for each in Cluster.all()) or "none"
        raise HarnessError(f"no cluster {name!r} (there are: {known}); python -m tests.cluster up --name {name}")
    return cluster


def _up(options: argparse.Namespace) -> int:
    cluster = Cluster.up(options.tier, options.name, gpus=options.gpus, scheduler=options.scheduler)
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def _down(options: argparse.Namespace) -> int:
    clusters = Cluster.all() if options.all else [found] if (found := Cluster.find(options.name)) else []
    for cluster in clusters:
        with step(f"remove cluster {cluster.name}"):
            cluster.down()
    return 0


def _status(options: argparse.Namespace) -> int:
    for cluster in Cluster.all():
        print(f"{cluster.name}  tier {cluster.settings.tier}  {cluster.server_url}  KUBECONFIG={cluster.kubeconfig}")
        for component in cluster.components():
            record = cluster.processes.record(component)
            alive = record is not None and record.identity.alive()
            print(f"  {component:20} {f'pid {record.identity.pid}' if alive and record else 'down'}")
    return 0


def _kubectl(options: argparse.Namespace) -> int:
    arguments = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    argv = [str(binary("kubectl")), f"--kubeconfig={_found(options.name).kubeconfig}", *arguments]
    return subprocess.run(argv, check=False).returncode


def _logs(options: argparse.Namespace) -> int:
    cluster = _found(options.name)
    if options.component not in cluster.components():
        raise HarnessError(f"no component {options.component!r}; there are: {', '.join(cluster.components())}")
    sys.stdout.write(cluster.processes.log(options.component).read_text(errors="replace"))
    return 0


def _images(options: argparse.Namespace) -> int:
    images = build_images()
    cluster = Cluster.find(options.name)
    for image in (images.operator, images.engine):
        print(image)
        if cluster is not None and cluster.settings.tier is Tier.NODE:
            with step(f"load {image} into cluster {cluster.name}"):
                cluster.load(image)
    return 0


def _build(options: argparse.Namespace) -> int:
    with step("programs"):
        found = binaries(options.programs or [*PROGRAMS, "helm"])
    for program, path in found.items():
        print(f"{program:24} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
