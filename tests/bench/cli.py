"""How quick the command line is: `python -m tests.bench.cli`. Writes build/bench/cli.json.

Start-up is the whole life of a process; a validation is what is left of it once everything is loaded: reading the
file, the schema, every rule, and the answer. Times are by the clock, so they count only on a machine that does nothing
else; the processor's time stands beside them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trtllm_operator.cli.format import Format
from trtllm_operator.cli.validate import validate

REPORT: Final = Path("build/bench/cli.json")
ROUNDS: Final = 50
STARTS: Final = 7
GOALS: Final = {"helpSeconds": 0.3, "validateMilliseconds": 5.0}

LLAMA: Final = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
MANIFEST: Final = """\
apiVersion: inference.trtllm-operator.dev/v1alpha1
kind: LLMDeployment
metadata:
  name: llama
spec:
  model: meta-llama/Llama-3.1-8B-Instruct
  buildConfig:
    maxBatchSize: 8
    maxSeqLen: 8192
    pluginConfig: {usePagedContextFmha: true}
  kvCacheConfig: {freeGpuMemoryFraction: 0.9}
  enableChunkedPrefill: true
  engine: {toolchain: torch}
"""


def main() -> int:
    """Measure, write, and compare with the goals; the exit code says whether they are met."""
    with tempfile.TemporaryDirectory() as folder:
        manifest, config = Path(folder, "llmd.yaml"), Path(folder, "config.json")
        manifest.write_text(MANIFEST)
        config.write_text(json.dumps(LLAMA))
        report = {
            "helpSeconds": _seconds(lambda: _start("--help"), STARTS),
            "helpProcessorSeconds": _seconds(lambda: _start("--help"), STARTS, _children),
            "validateProcessSeconds": _seconds(lambda: _start("validate", str(manifest)), STARTS),
            "validateMilliseconds": 1000 * _seconds(lambda: _validate(manifest, None), ROUNDS),
            "validateWithModelMilliseconds": 1000 * _seconds(lambda: _validate(manifest, config), ROUNDS),
            "validateProcessorMilliseconds": 1000
            * _seconds(lambda: _validate(manifest, None), ROUNDS, time.process_time),
        }
    met = {name: report[name] < goal for name, goal in GOALS.items()}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({**report, "goals": GOALS, "met": met}, indent=2) + "\n")
    for name, value in report.items():
        print(f"{name:32} {value:8.3f}" + (f"  goal {GOALS[name]}" if name in GOALS else ""))
    return 0 if all(met.values()) else 1


def _start(*arguments: str) -> None:
    command = [sys.executable, "-m", "trtllm_operator.cli", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _children() -> float:
    """Processor time of the processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _validate(manifest: Path, config: Path | None) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        model_config = None if config is None else str(config)
        validate([str(manifest)], model_config=model_config, facts=None, nodes=None, config=None, output=Format.JSON)


def _seconds(work: Callable[[], None], rounds: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Median of a run, after one that does not count."""
    work()
    times = []
    for _ in range(rounds):
        begin = clock()
        work()
        times.append(clock() - begin)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
