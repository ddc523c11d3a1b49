"""What the person at the terminal sees: a live view, or plain lines where there is no terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tests.demo.progress import Board
from tests.demo.steps import Line, Run, State

MARKS: Final = {
    State.WAITING: ("·", "dim"),
    State.RUNNING: ("◐", "cyan"),
    State.DONE: ("✓", "green"),
    State.FAILED: ("✗", "bold red"),
    State.CANCELLED: ("–", "yellow"),
}
BAR: Final = 16
"""Characters of a progress bar."""
QUIET: Final = 15.0
"""Seconds between two lines about the same running step, without a terminal."""


def duration(seconds: float) -> str:
    """`7s`, `3m05s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def remaining(lines: Sequence[Line], now: float) -> float:
    """Seconds until the end if every step takes what it is expected to: the longest way through the graph."""
    end: dict[str, float] = {}
    for line in lines:
        left = 0.0 if line.state is State.DONE else max(line.step.expected - line.elapsed(now), 0.0)
        end[line.step.name] = left + max((end[name] for name in line.step.needs), default=0.0)
    return max(end.values(), default=0.0)


def follow(run: Run, board: Board, console: Console) -> None:
    """Show the run until it is over. Raises what the run raises."""
    if console.is_terminal:
        _live(run, board, console)
    else:
        _plain(run, board, console)


def _live(run: Run, board: Board, console: Console) -> None:
    with Live(console=console, refresh_per_second=5, transient=False) as live:
        try:
            while True:
                live.update(_picture(run, board))
                if run.wait(0.2):
                    return
        finally:
            live.update(_picture(run, board))


def _picture(run: Run, board: Board) -> RenderableType:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(width=1)
    table.add_column(width=max(len(line.step.title) for line in run.lines))
    table.add_column(width=len("10m00s of ~10m00s"), justify="right")
    table.add_column(width=BAR)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for line in run.lines:
        table.add_row(*_row(line, run.now))
    over = all(line.state is State.DONE for line in run.lines)
    left = "" if over else f" · at most about {duration(remaining(run.lines, run.now))} left"
    parts: list[RenderableType] = [
        Panel(table, title=f"trtllm-operator demo · {duration(run.now - run.began)}{left}", border_style="dim")
    ]
    if board.text:
        parts.append(
            Panel(
                Text(board.text.rstrip(), no_wrap=True, overflow="ellipsis"),
                title="kubectl get llmd,llme",
                border_style="dim",
            )
        )
    return Group(*parts)


def _row(line: Line, now: float) -> tuple[RenderableType, ...]:
    mark, style = MARKS[line.state]
    elapsed = line.elapsed(now)
    if line.state is State.RUNNING:
        clock = f"{duration(elapsed)} of ~{duration(line.step.expected)}"
        bar: RenderableType = ProgressBar(total=1.0, completed=min(elapsed / line.step.expected, 0.98), width=BAR)
        return Text(mark, style), line.step.title, clock, bar, Text(line.progress.detail, "dim")
    if line.state is State.WAITING:
        return Text(mark, style), Text(line.step.title, style), Text(f"~{duration(line.step.expected)}", style), "", ""
    return Text(mark, style), line.step.title, duration(elapsed), "", ""


def _plain(run: Run, board: Board, console: Console) -> None:
    """A line for each change, so that a log stays readable."""
    states = {line.step.name: State.WAITING for line in run.lines}
    spoken: dict[str, float] = {}
    shown, shown_at = "", 0.0
    while True:
        over = False
        try:
            over = run.wait(0.2)
        finally:
            for line in run.lines:
                now, name = run.now, line.step.name
                changed = line.state is not states[name]
                states[name] = line.state
                if changed and line.state is State.RUNNING:
                    _say(console, run, f"{line.step.title} … (about {duration(line.step.expected)})")
                elif changed:
                    _say(console, run, f"{line.step.title}: {line.state.value} in {duration(line.elapsed(now))}")
                elif line.state is State.RUNNING and now - spoken.get(name, line.started) >= QUIET:
                    _say(
                        console, run, f"{line.step.title}: {duration(line.elapsed(now))}  {line.progress.detail[:140]}"
                    )
                else:
                    continue
                spoken[name] = now
        news = board.text != shown and (over or run.now - shown_at >= QUIET)
        if news or _without_numbers(board.text) != _without_numbers(shown):
            shown, shown_at = board.text, run.now
            console.print(board.text.rstrip(), markup=False, highlight=False, soft_wrap=True)
        if over:
            return


def _say(console: Console, run: Run, text: str) -> None:
    console.print(f"[{duration(run.now - run.began):>7}] {text}", markup=False, highlight=False, soft_wrap=True)


def _without_numbers(table: str) -> str:
    """What is left is news at once; a percentage or an age is not."""
    return re.sub(r"[\d.%]+|\s+", " ", table)
