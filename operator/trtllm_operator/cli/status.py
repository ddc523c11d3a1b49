"""`llmd status`: what runs, what is wrong, and why; once, or until it is interrupted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from ..api.conditions import ConditionType, find_condition
from ..api.deployment import LLMDeployment, Phase
from ..cluster.errors import ClusterError
from .account import account, brief
from .amounts import age
from .cluster import UserClient, namespace_of, with_cluster
from .format import Format
from .output import Screen, Style, emit
from .picture import look
from .portrait import PHASE_STYLES, headline, portrait
from .tree import draw

INTERVAL: Final = 2.0
"""Seconds between two looks."""
Pause = Callable[[], Awaitable[None]]
Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is looked at."""

    namespace: str | None
    """None: all."""
    name: str | None = None
    """None: every deployment."""


def status(
    name: str | None,
    *,
    namespace: str | None,
    everywhere: bool,
    watch: bool,
    kubeconfig: str | None,
    output: Format | None,
) -> int:
    """Print a table, or the tree of one deployment; with `output` the same for machines. Raises `BadInput`."""
    scope = Scope(namespace=None if everywhere else namespace_of(namespace, kubeconfig), name=name)

    async def pause() -> None:
        await asyncio.sleep(INTERVAL)

    async def work(client: UserClient) -> None:
        if output is not None:
            emit(sys.stdout, await tell(client, scope), output)
        elif watch:
            await keep_looking(client, scope, sys.stdout, pause)
        else:
            seen = await see(client, scope, Screen(sys.stdout))
            sys.stdout.write("".join(f"{line}\n" for line in seen.lines))

    with_cluster(kubeconfig, work)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look."""

    lines: Sequence[str]
    headlines: Sequence[str]
    """One per deployment; they differ only when something has happened."""


async def see(client: UserClient, scope: Scope, screen: Screen, clock: Clock = _now) -> Seen:
    """Raises `BadInput` and `ClusterError`."""
    now = clock()
    if scope.name is not None and scope.namespace is not None:
        picture = await look(client, scope.namespace, scope.name)
        return Seen(lines=draw(screen, portrait(picture, now)), headlines=[headline(picture.deployment)])
    deployments = await _all(client, scope)
    if not deployments:
        where = f"in namespace {scope.namespace}; -A looks in all" if scope.namespace else "in any namespace"
        return Seen(lines=[f"no LLMDeployment {where}"], headlines=())
    everywhere = scope.namespace is None
    prefix = [f"{d.meta.namespace}/" if everywhere else "" for d in deployments]
    return Seen(
        lines=overview(screen, deployments, everywhere=everywhere, now=now),
        headlines=[where + headline(d) for where, d in zip(prefix, deployments, strict=True)],
    )


async def tell(client: UserClient, scope: Scope) -> dict[str, Any]:
    """The same for machines: one deployment with all that belongs to it, or `deployments` without. Raises as `see`."""
    if scope.name is not None and scope.namespace is not None:
        return account(await look(client, scope.namespace, scope.name))
    return {"deployments": [brief(deployment) for deployment in await _all(client, scope)]}


async def _all(client: UserClient, scope: Scope) -> list[LLMDeployment]:
    objects = (await client.list(LLMDeployment.KIND, scope.namespace)).items
    return sorted(map(LLMDeployment.of, objects), key=lambda d: (d.meta.namespace, d.meta.name))


async def keep_looking(client: UserClient, scope: Scope, stream: TextIO, pause: Pause, clock: Clock = _now) -> None:
    """For ever: drawn anew on a terminal, a line for each change anywhere else.

    What cannot be read after the first time is said, and tried again.
    """
    told: set[str] = set()
    lines: Sequence[str] = ()
    while True:
        screen, trouble = Screen(stream), ""
        try:
            seen = await see(client, scope, screen, clock)
            lines, told = seen.lines, _tell(stream, told, seen.headlines, clock(), silent=screen.terminal)
        except ClusterError as error:
            if not lines:
                raise
            trouble = f"not up to date: {error}"
        if screen.terminal:
            stream.write(frame([*lines, *([trouble] if trouble else [])], screen))
            stream.flush()
        await pause()


def frame(lines: Sequence[str], screen: Screen) -> str:
    """From the upper left corner, each line to its end, and nothing below; what has no room is counted."""
    shown = list(lines)
    if len(lines) >= screen.height:
        room = max(1, screen.height - 2)
        shown = [*lines[:room], f"... {len(lines) - room} lines more"]
    # Cleared before it is written: behind a line that fills the width, its last letter would be cleared.
    return "\x1b[H" + "".join(f"\x1b[K{line}\n" for line in shown) + "\x1b[J"


def _tell(stream: TextIO, told: set[str], headlines: Iterable[str], now: datetime, *, silent: bool) -> set[str]:
    if not silent:
        for line in headlines:
            if line not in told:
                stream.write(f"{now:%Y-%m-%dT%H:%M:%SZ}  {line}\n")
        stream.flush()
    return set(headlines)


COLUMNS: Final[Sequence[str]] = (
    # What goes first when the terminal is too narrow stands last here.
    "NAME",
    "READY",
    "PHASE",
    "REASON",
    "NAMESPACE",
    "ENGINE",
    "AGE",
    "PARALLEL",
    "MODEL",
    "GPUS",
    "REVISION",
)
ORDER: Final[Sequence[str]] = (
    "NAMESPACE",
    "NAME",
    "READY",
    "PHASE",
    "ENGINE",
    "MODEL",
    "PARALLEL",
    "GPUS",
    "REVISION",
    "REASON",
    "AGE",
)
WIDE: Final[Sequence[str]] = ("GPUS", "REVISION")
"""Only where a terminal has room for them."""


def overview(screen: Screen, deployments: Sequence[LLMDeployment], *, everywhere: bool, now: datetime) -> list[str]:
    """A line per deployment, with as many columns as there is room for."""
    rows = [_cells(deployment, now) for deployment in deployments]
    kept = [
        column for column in COLUMNS if (everywhere or column != "NAMESPACE") and (screen.width or column not in WIDE)
    ]
    widths = {column: max(len(column), *(len(row[column]) for row in rows)) for column in kept}
    while len(kept) > 1 and screen.width and sum(widths[c] + 3 for c in kept) - 3 > screen.width:
        kept.pop()
    shown = [column for column in ORDER if column in kept]

    def line(cells: dict[str, str], styles: Mapping[str, Style]) -> str:
        padded = [(cells[c].ljust(widths[c] if c != shown[-1] else 0), styles.get(c)) for c in shown]
        return "   ".join(text if style is None else screen.style(text, style) for text, style in padded)

    head = screen.style(line({column: column for column in shown}, {}), Style.FAINT)
    looks = [PHASE_STYLES.get(deployment.status.phase or Phase.PENDING, Style.DOUBTFUL) for deployment in deployments]
    lines = [line(row, {"PHASE": look}) for row, look in zip(rows, looks, strict=True)]
    return [screen.letters(text) for text in (head, *lines)]


def _cells(deployment: LLMDeployment, now: datetime) -> dict[str, str]:
    meta, status, spec = deployment.meta, deployment.status, deployment.spec
    shown, ready = status.display, find_condition(status.conditions, ConditionType.READY)
    cells = {
        "NAMESPACE": meta.namespace,
        "NAME": meta.name,
        "READY": shown.ready if shown else None,
        "PHASE": status.phase or Phase.PENDING,
        "ENGINE": shown.engine if shown else None,
        "MODEL": spec.model if spec else None,
        "PARALLEL": shown.parallel if shown else None,
        "GPUS": str(status.mapping.gpus) if status.mapping else None,
        "REVISION": status.current_revision,
        "REASON": ready.reason if ready else None,
        "AGE": age(meta.created, now),
    }
    return {column: text or "-" for column, text in cells.items()}
