"""`llmd logs`: what the pods of a deployment say, of all ranks, each line with its pod before it."""

from __future__ import annotations

import asyncio
import enum
import sys
from collections.abc import Sequence
from typing import Final, TextIO

from ..api.views import PodView
from ..cluster.errors import ClusterError
from .cluster import UserClient, namespace_of, with_cluster
from .failure import BadInput
from .output import Screen, Style
from .picture import Picture, family

STYLES: Final = (Style.STRONG, Style.GOOD, Style.DOUBTFUL, Style.BAD)
"""Of prefixes, in turn."""


class Which(enum.Enum):
    """Whose words."""

    SERVE = "server"
    BUILD = "build"
    FETCH = "fetch"


def logs(
    name: str,
    *,
    which: Which | None,
    follow: bool,
    previous: bool,
    tail: int | None,
    namespace: str | None,
    kubeconfig: str | None,
) -> int:
    """1 if a pod that was asked has no log. Raises `BadInput`."""
    where = namespace_of(namespace, kubeconfig)

    async def work(client: UserClient) -> int:
        pods = choose(await family(client, where, name), which)
        if not pods:
            raise BadInput(f"{name} has no pods{f' of {which.value}' if which else ''}; see: llmd status {name}")
        return await tell(client, pods, sys.stdout, follow=follow, previous=previous, tail=tail)

    return with_cluster(kubeconfig, work)


def choose(picture: Picture, which: Which | None) -> tuple[PodView, ...]:
    """Those that were asked for; else those that come last: servers, before there are any builders, else fetchers."""
    found = {
        Which.SERVE: tuple(pod for group in picture.groups for pod in picture.pods_of(group)),
        Which.BUILD: picture.building(),
        Which.FETCH: picture.fetching(),
    }
    return found[which] if which is not None else next((pods for pods in found.values() if pods), ())


async def tell(
    client: UserClient, pods: Sequence[PodView], stream: TextIO, *, follow: bool, previous: bool, tail: int | None
) -> int:
    """One pod after the other; with `follow` all at once, to their ends."""
    screen, width = Screen(stream), max(len(pod.meta.name) for pod in pods)
    silent: list[str] = []

    async def one(number: int, pod: PodView) -> None:
        prefix = screen.style(pod.meta.name.ljust(width), STYLES[number % len(STYLES)])
        try:
            lines = client.log_lines(pod.meta.namespace, pod.meta.name, follow=follow, previous=previous, tail=tail)
            async for line in lines:
                stream.write(f"{prefix} | {line}\n")
                if follow:
                    stream.flush()
        except ClusterError as error:
            silent.append(f"{pod.meta.name}: no log: {getattr(error, 'message', None) or error}")

    if follow:
        await asyncio.gather(*(one(number, pod) for number, pod in enumerate(pods)))
    else:
        for number, pod in enumerate(pods):
            await one(number, pod)
    stream.flush()
    remarks = Screen(sys.stderr)
    for remark in silent:
        remarks.line(remark)
    return 1 if silent else 0
