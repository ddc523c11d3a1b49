"""A serving process as in a pod, but over a double: `python -m tests.unit.serve.serving_process KIND [GATE]`.

KIND `tiny` loads a random decoder as soon as the file GATE exists; `dying` fails in its third step, the first after
the warm-up.
"""

from __future__ import annotations

import json
import sys
import time
from asyncio.subprocess import Process
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.unit.serve.doubles import DoubleRuntime, DoubleTokenizer, endless, loaded
from tests.unit.serve.harness import MODEL
from tests.unit.serve.tiny import tiny_runtime
from trtllm_engine.contract import ServeRequest
from trtllm_engine.failure import Failure
from trtllm_engine.serve.load import Loaded, Report
from trtllm_engine.serve.main import serve

DRAIN_SECONDS = 60
"""Far beyond the tests' patience: only a second signal ends it in time."""


@dataclass(frozen=True)
class Running:
    process: Process
    http: httpx.AsyncClient

    async def event(self, name: str) -> dict[str, object]:
        """Read the log up to this event."""
        assert self.process.stderr is not None
        seen = ""
        while line := (await self.process.stderr.readline()).decode():
            seen += line
            if line.startswith("{") and (fields := json.loads(line))["event"] == name:
                return dict(fields)
        raise AssertionError(f"the process ended before {name!r}:\n{seen}")

    async def exit_code(self) -> int:
        await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


def load_double(request: ServeRequest, store: Path, report: Report) -> Loaded:
    kind, *gate = sys.argv[1:]
    if kind == "dying":
        runtime = DoubleRuntime(endless)
        runtime.dies_at = 3
        return loaded(runtime)
    report(0.0, "starting")
    while not Path(gate[0]).exists():
        report(40.0, "waiting for the gate")
        time.sleep(0.01)
    return Loaded(tiny_runtime(slots=4, context=1024), DoubleTokenizer(), frozenset())


def main() -> int:
    request = ServeRequest(engine_key="k", engine="engines/k", model_name=MODEL, port=0, drain_seconds=DRAIN_SECONDS)
    try:
        return serve(request, load=load_double)
    except Failure as failure:
        print(failure.message, file=sys.stderr)
        return int(failure.code)


if __name__ == "__main__":
    sys.exit(main())
