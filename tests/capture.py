"""Captures of `llmd status -w` for the docs: `python -m tests.capture` writes docs/img.

The real command looks at a stand-in for the API server, on a stand-in for a terminal: one picture of each scene, as
text without colours, and in colours as SVG on a dark and on a light ground.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI, TerminalTheme
from rich.text import Text

from tests.builders import merged
from tests.unit.cli.fake_cluster import FakeCluster, fake_cluster
from tests.unit.cli.harness import FakeTerminal
from tests.unit.cli.running import (
    KEY,
    OLD,
    SINCE,
    a_builder,
    a_condition,
    a_group,
    a_progress_line,
    a_served_model,
    a_server,
    its_engine,
)
from trtllm_operator.cli.cluster import UserClient, with_cluster
from trtllm_operator.cli.status import Scope, keep_looking

Json = dict[str, Any]

FOLDER: Final = Path(__file__).parent.parent / "docs" / "img"
NOW: Final = datetime.fromisoformat(SINCE) + timedelta(minutes=3)
WIDTHS: Final = (80, 200)
LINES: Final = "60"
GROUNDS: Final[Mapping[str, TerminalTheme]] = {"dark": MONOKAI, "light": DEFAULT_TERMINAL_THEME}
FONT: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
ENGINE: Final = {"name": "llama-41be90c2d7f3", "key": KEY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is in the cluster, and what is looked at."""

    fill: Callable[[FakeCluster], None]
    name: str | None = "llama"
    """None: the table."""


def a_table(cluster: FakeCluster) -> None:
    def put(name: str, model: str, minutes: int, reason: str, ready: bool = False, **status: Any) -> None:
        condition = a_condition("Ready", "True" if ready else "False", reason, "")
        created = f"{NOW - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
        obj = a_served_model(name, spec={"model": model}, status={"conditions": [condition], **status})
        cluster.put(merged(obj, {"metadata": {"creationTimestamp": created}}))

    def shown(ready: str, engine: str, parallel: str) -> Json:
        return {"ready": ready, "engine": engine, "parallel": parallel}

    small = {"gpus": 1}
    put("smollm2", "/models/SmolLM2-135M", 6, "AsExpected", True, display=shown("1/1", "9f3c1ab04d7e", "tp1"),
        mapping=small)  # fmt: skip
    put("llama-70b", "meta-llama/Llama-3.3-70B-Instruct", 21, "BuildingEngine", phase="Building",
        display=shown("2/2", "41%, 7m left", "tp8"))  # fmt: skip
    put("mixtral", "mistralai/Mixtral-8x7B-Instruct-v0.1", 3, "WaitingForGPUs", phase="RollingOut",
        display=shown("0/2", "77d2e0c5b9aa", "tp2·pp2"), mapping={"gpus": 4})  # fmt: skip
    put("qwen-fp8", "Qwen/Qwen3-32B", 125, "BuildOutOfMemory", phase="Degraded",
        display=shown("3/3", "0/2 ranks failed", "tp2"), mapping={"gpus": 2})  # fmt: skip


def a_rollout(cluster: FakeCluster) -> None:
    waits = "1 of 2 replicas are ready; one by one, because no GPUs are free for a surge: 0 of 16 H100 on 2 nodes"
    reason = a_condition("Ready", "False", "RollingOut", waits)
    chosen = {
        "field": "spec.buildConfig.maxBatchSize",
        "to": "64",
        "reason": "the most that fits: 72.00 GiB of 80.00 GiB of a NVIDIA-H100-80GB-HBM3",
    }
    status = {"phase": "RollingOut", "conditions": [reason], "currentRevision": OLD, "adjustments": [chosen]}
    cluster.put(a_served_model(status=status), its_engine())
    cluster.put(a_group(0, ready=0), a_server("llama-0", ready=False, node="gpu-b"))
    cluster.put(a_group(1, revision=OLD), a_server("llama-1"))
    cluster.logs["llama-0-0"] = a_progress_line("weights", 68.4)


def a_build(cluster: FakeCluster) -> None:
    reason = a_condition("Ready", "False", "BuildingEngine", "engine llama-41be90c2d7f3: weights, 41%, 7m11s left")
    engine = {**ENGINE, "state": "Building", "percent": 41, "etaSeconds": 431}
    none = {"currentRevision": None, "display": {"ready": "0/2", "engine": "41%, 7m left"}, "url": None}
    cluster.put(a_served_model(status={"phase": "Building", "conditions": [reason], "engine": engine, **none}))
    cluster.put(its_engine(status={"phase": "Building", "step": "weights"}))
    for rank, (step, percent) in enumerate([("network", 100), ("weights", 82), ("weights", 47), ("weights", 9)]):
        cluster.put(a_builder(rank))
        cluster.logs[f"build-{rank}"] = a_progress_line(step, percent, f"layer {percent * 8 // 10}/80")
    cluster.put(a_builder(4, node=None, phase="Pending"))


def a_failure(cluster: FakeCluster) -> None:
    message = (
        "engine llama-41be90c2d7f3: rank 1 needed more than 96Gi of host memory (step weights, 63%); revision "
        f"{OLD} keeps serving; set engine.resources.limits.memory to 128Gi or more"
    )
    conditions = [a_condition(kind, "True", "BuildOutOfMemory", message) for kind in ("Stalled",)]
    status = {"phase": "Degraded", "conditions": conditions, "currentRevision": OLD}
    cluster.put(a_served_model(status={**status, "engine": {**ENGINE, "state": "Failed"}}))
    cluster.put(its_engine(status={"phase": "Failed"}))
    cluster.put(a_group(0, revision=OLD), a_server("llama-0"), a_group(1, revision=OLD, ready=0))
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": '{"ok": false, "message": "no CUDA device"}'}}
    crash: Json = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended, "restartCount": 4}
    cluster.put(a_server("llama-1", ready=False, node="gpu-b", **crash))


SCENES: Final[Mapping[str, Scene]] = {
    "table": Scene(fill=a_table, name=None),
    "rollout": Scene(fill=a_rollout),
    "build": Scene(fill=a_build),
    "failure": Scene(fill=a_failure),
}


PICTURES: Final = [(name, width, ground) for name in ("rollout", "failure") for width in WIDTHS for ground in GROUNDS]
"""What is drawn in colours."""


class _Enough(Exception):
    """Ends what would go on for ever."""


@cache
def look(scene: Scene, width: int, *, colours: bool) -> tuple[str, ...]:
    """The lines of one frame, as a terminal of this width gets them."""
    stream = FakeTerminal()

    async def pause() -> None:
        raise _Enough

    async def work(client: UserClient) -> None:
        await keep_looking(client, Scope(namespace="prod", name=scene.name), stream, pause, lambda: NOW)

    with (
        tempfile.TemporaryDirectory() as folder,
        fake_cluster(Path(folder), "prod") as cluster,
        _terminal(width, colours=colours),
    ):
        scene.fill(cluster)
        with suppress(_Enough):
            with_cluster(str(cluster.kubeconfig), work)
    first = stream.getvalue().removeprefix("\x1b[H").removesuffix("\x1b[J")
    return tuple(line.removeprefix("\x1b[K") for line in first.splitlines())


@contextmanager
def _terminal(width: int, *, colours: bool) -> Iterator[None]:
    before = dict(os.environ)
    os.environ |= {"COLUMNS": str(width), "LINES": LINES, "TERM": "xterm-256color", "NO_COLOR": "" if colours else "1"}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def text(name: str) -> str:
    """A scene at both widths, without colours."""
    parts = []
    for width in WIDTHS:
        lines = look(SCENES[name], width, colours=False)
        parts.append("\n".join([f"{width} columns".ljust(width, "-"), *lines]))
    return "\n\n".join(parts) + "\n"


def svg(name: str, width: int, ground: str) -> str:
    """A scene in colours."""
    lines = look(SCENES[name], width, colours=True)
    with open(os.devnull, "w") as nothing:
        console = Console(record=True, width=width, file=nothing, force_terminal=True, color_system="standard")
        for line in lines:
            console.print(Text.from_ansi(line), soft_wrap=True)
        drawn = console.export_svg(title=_typed(name), theme=GROUNDS[ground], unique_id=f"llmd-{name}")
    # Whatever monospaced font the reader has: a page must not fetch one from elsewhere.
    return "\n".join(line.rstrip() for line in FONT.sub("", drawn).splitlines()) + "\n"


def _typed(name: str) -> str:
    return " ".join(part for part in ("llmd status", SCENES[name].name, "-w") if part)


def main() -> None:
    """Write every capture."""
    FOLDER.mkdir(exist_ok=True)
    for name in SCENES:
        (FOLDER / f"status-{name}.txt").write_text(text(name))
    for name, width, ground in PICTURES:
        (FOLDER / f"status-{name}-{width}-{ground}.svg").write_text(svg(name, width, ground))


if __name__ == "__main__":
    main()
