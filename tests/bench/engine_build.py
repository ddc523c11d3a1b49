"""What a rank's build costs in memory, next to its weights: `python -m tests.bench.engine_build`.

Writes build/bench/engine.json. A model of about a billion random parameters is made once in a temporary folder; every
rank is built in a process of its own, which is watched while it runs. Anonymous memory is what a node must really have:
pages of the mapped checkpoint can be dropped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trtllm_engine.build.engine_folder import read_record
from trtllm_engine.build.toolchain import toolchain_version
from trtllm_engine.checkpoint.folder import digest
from trtllm_engine.contract import (
    BuildArgs,
    BuildRequest,
    Mapping,
    ModelSource,
    Target,
    Toolchain,
    engine_folder,
)

REPORT: Final = Path("build/bench/engine.json")
POLL_SECONDS: Final = 0.05
RATIO, BASE_BYTES = 1.8, 10**9
"""The promise: at most 1.8 times the rank's weights, and a gigabyte."""

SIZES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "1b": (
        "Llama",
        {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 14, "num_attention_heads": 32},
    ),
    "1b-mixture": (
        "Mixtral",
        {
            "hidden_size": 2048,
            "intermediate_size": 2048,
            "num_hidden_layers": 8,
            "num_attention_heads": 32,
            "num_local_experts": 8,
        },
    ),
    "tiny": (
        "Llama",
        {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8},
    ),
}
"""(architecture, config) of random models; the weights of a mixture are gathered from a tensor for each expert."""

BUILDS: Final = (
    (Toolchain.TENSORRT_RTX, Mapping(tp=2), 1),
    (Toolchain.TENSORRT_RTX, Mapping(tp=2, pp=2), 3),
    (Toolchain.TENSORRT_RTX, Mapping(), 0),
    (Toolchain.TORCH, Mapping(), 0),
    (Toolchain.TORCH, Mapping(tp=2), 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One rank's build."""

    toolchain: str
    mapping: str
    rank: int
    weight_bytes: int
    engine_bytes: int
    peak_anonymous_bytes: int
    seconds: dict[str, float]

    @property
    def limit(self) -> float:
        return RATIO * self.weight_bytes + BASE_BYTES

    def report(self) -> dict[str, object]:
        """`overhead` is what our own steps take next to the library's builder."""
        builder, total = self.seconds.get("build"), sum(self.seconds.values())
        return {
            **asdict(self),
            "overhead": round(total / builder - 1, 3) if builder else None,
            "ratio": round(self.peak_anonymous_bytes / self.weight_bytes, 2),
            "within": self.peak_anonymous_bytes <= self.limit,
        }


def make_model(folder: Path, size: str) -> None:
    """Random bfloat16 weights; written shard by shard as transformers does."""
    import torch
    import transformers

    from tests.models import tiny_tokenizer

    architecture, shape = SIZES[size]
    config = getattr(transformers, f"{architecture}Config")(
        **shape, num_key_value_heads=8, vocab_size=32000, max_position_embeddings=4096, dtype="bfloat16"
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        getattr(transformers, f"{architecture}ForCausalLM")(config).save_pretrained(folder, max_shard_size="500MB")
    tiny_tokenizer().save_pretrained(folder)


def measure(root: Path, toolchain: Toolchain, mapping: Mapping, rank: int) -> Measured:
    """Build one rank in a process of its own."""
    key = f"{toolchain.value}-tp{mapping.tp}-pp{mapping.pp}"
    request = BuildRequest(
        engine_key=key,
        model=ModelSource(path="/models/random"),
        model_digest=digest(root / "models" / "random"),
        args=BuildArgs(dtype="bfloat16", max_batch_size=4, max_input_len=512, max_seq_len=1024),
        mapping=mapping,
        toolchain=toolchain,
        toolchain_version=toolchain_version(toolchain),
        target=Target(compute_capability=None if toolchain is Toolchain.TORCH else "8.9"),
        output=engine_folder(key),
    )
    (root / "request.json").write_text(request.to_json())
    command = [sys.executable, "-m", "trtllm_engine", "build", "--rank", str(rank), "--root", str(root)]
    command += ["--request", str(root / "request.json"), "--result", str(root / "result.json")]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(POLL_SECONDS)
    if process.returncode:
        raise SystemExit((root / "result.json").read_text())
    folder = root / "store" / request.output
    record = read_record(folder, rank)
    return Measured(
        toolchain=toolchain.value,
        mapping=f"tp{mapping.tp} pp{mapping.pp}",
        rank=rank,
        weight_bytes=record.plan["weightBytes"],
        engine_bytes=record.bytes,
        peak_anonymous_bytes=peak,
        seconds=record.seconds,
    )


def anonymous_bytes(pid: int) -> int:
    """What the process holds that no file backs; 0 once it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(lines[0][1]) * 1024 if lines else 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.engine_build", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="1b", help="size of the model (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="engine-bench-") as scratch:
        root = Path(scratch)
        make_model(root / "models" / "random", options.size)
        for toolchain, mapping, rank in BUILDS:
            measured = measure(root, toolchain, mapping, rank)
            print(json.dumps(measured.report()), flush=True)
            note(f"{options.size} {toolchain.value} {measured.mapping} rank {rank}", measured)
            if measured.peak_anonymous_bytes > measured.limit:
                raise SystemExit(f"a build needs more than {RATIO} times its weights and {BASE_BYTES} bytes")


def note(name: str, measured: Measured) -> None:
    """Keep what other benchmarks wrote, and other builds."""
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    report = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    report.setdefault("builds", {})[name] = measured.report()
    REPORT.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
