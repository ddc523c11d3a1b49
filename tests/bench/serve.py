"""What the server costs beside plain transformers, and what it gains from many requests at once.

`python -m tests.bench.serve` builds the small real model for the CPU, serves it as a pod would, and writes
`build/bench/serve.json`. Both sides compute the same tokens of the same weights with the same number of threads, in
turns, and of each the least disturbed round counts; what is asked for are the ratios.

With `--ranks` it is served by several ranks as well, three tensor ranks (it has nine heads) and two pipeline stages:
each must answer what transformers does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.models import smollm2
from trtllm_engine.build import job
from trtllm_engine.build.toolchain import toolchain_version
from trtllm_engine.checkpoint.folder import digest
from trtllm_engine.contract import (
    BuildArgs,
    BuildRequest,
    Mapping,
    ModelSource,
    ServeRequest,
    Target,
    Toolchain,
    engine_folder,
)
from trtllm_engine.mounts import Mounts
from trtllm_engine.serve.cpus import usable_cpus

OUTPUT: Final = Path("build/bench/serve.json")
MODEL: Final = "bench"
BATCH: Final = 8

MAX_OVERHEAD: Final = 1.0
"""Time of the server per token, over HTTP, in times of transformers' own."""
MIN_GAIN: Final = 3.0
"""Tokens per second of `BATCH` requests at once, in times of one request's."""

SPREAD: Final = {"tp3": Mapping(tp=3), "pp2": Mapping(pp=2)}

PROMPTS: Final = [f"Once upon a time, in the year {1900 + 7 * n}, there was a" for n in range(BATCH)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Each is the best of its rounds: what else the machine does only ever adds to a time."""

    cpus: int
    load_average: float
    rounds: int
    tokens: int
    transformers_ms_per_token: float
    server_ms_per_token: float
    overhead: float
    max_overhead: float
    batch: int
    single_tokens_per_second: float
    batch_tokens_per_second: float
    gain: float
    min_gain: float

    same_text_on_ranks: tuple[str, ...] = ()
    """Layouts that were tried; another text ends the program."""

    @property
    def met(self) -> bool:
        return self.overhead <= self.max_overhead and self.gain >= self.min_gain


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.serve", description="Measure the server.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens per answer (default: %(default)s)")
    parser.add_argument("--ranks", action="store_true", help="also serve by several ranks, and compare the text")
    options = parser.parse_args()
    torch.set_num_threads(usable_cpus())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        model = smollm2()
        plain = _Plain(model, options.tokens)
        Mounts.below(root).models.symlink_to(model.parent)
        with _served(root, _build(root, model, "whole", Mapping())) as url:
            figures = asyncio.run(_measure(url, plain, options.rounds, options.tokens))
        for layout, mapping in SPREAD.items() if options.ranks else ():
            with _served(root, _build(root, model, layout, mapping)) as url:
                asyncio.run(_compare(url, plain, options.tokens))
            figures = replace(figures, same_text_on_ranks=(*figures.same_text_on_ranks, layout))
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({**asdict(figures), "met": figures.met}, indent=2) + "\n")
    print(OUTPUT.read_text())
    return 0 if figures.met else 1


async def _compare(url: str, plain: _Plain, tokens: int) -> None:
    _, expected = plain.generate(PROMPTS[0])
    async with httpx.AsyncClient(base_url=url, timeout=600) as http:
        await _ask(http, PROMPTS[:1], tokens, expected)


async def _measure(url: str, plain: _Plain, rounds: int, tokens: int) -> Figures:
    load = os.getloadavg()[0]
    own: list[float] = []
    single: list[float] = []
    many: list[float] = []
    async with httpx.AsyncClient(base_url=url, timeout=600) as http:
        for number in range(rounds + 1):
            seconds, expected = plain.generate(PROMPTS[0])
            own.append(seconds)
            single.append(await _ask(http, PROMPTS[:1], tokens, expected))
            many.append(await _ask(http, PROMPTS, tokens, None))
            if number == 0:  # the first of each warms up
                own, single, many = [], [], []
    return Figures(
        cpus=usable_cpus(),
        load_average=round(load, 2),
        rounds=rounds,
        tokens=tokens,
        transformers_ms_per_token=_rounded(1000 * min(own) / tokens),
        server_ms_per_token=_rounded(1000 * min(single) / tokens),
        overhead=_rounded(min(single) / min(own)),
        max_overhead=MAX_OVERHEAD,
        batch=BATCH,
        single_tokens_per_second=_rounded(tokens / min(single)),
        batch_tokens_per_second=_rounded(BATCH * tokens / min(many)),
        gain=_rounded(BATCH * min(single) / min(many)),
        min_gain=MIN_GAIN,
    )


class _Plain:
    """transformers as its documentation calls it."""

    def __init__(self, model: Path, tokens: int) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self._tokens = tokens

    def generate(self, prompt: str) -> tuple[float, str]:
        """Seconds, and the text."""
        ids = self._tokenizer(prompt, return_tensors="pt")
        started = time.perf_counter()
        with torch.inference_mode():
            output = self._model.generate(**ids, max_new_tokens=self._tokens, do_sample=False)
        seconds = time.perf_counter() - started
        answer = output[0, ids["input_ids"].shape[1] :]
        assert len(answer) == self._tokens, "the answer ended early: less was computed than is counted"
        return seconds, str(self._tokenizer.decode(answer, skip_special_tokens=True))


async def _ask(http: httpx.AsyncClient, prompts: list[str], tokens: int, expected: str | None) -> float:
    """Seconds until all are answered; `expected` is what the first must answer."""

    async def ask(prompt: str) -> dict[str, Any]:
        body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        return dict((await http.post("/v1/completions", json=body)).raise_for_status().json())

    started = time.perf_counter()
    answers = await asyncio.gather(*[ask(prompt) for prompt in prompts])
    seconds = time.perf_counter() - started
    assert all(answer["usage"]["completion_tokens"] == tokens for answer in answers), "an answer ended early"
    assert expected in (None, answers[0]["choices"][0]["text"]), "the server computed something else"
    return seconds


def _build(root: Path, model: Path, key: str, mapping: Mapping) -> ServeRequest:
    """Publish every rank."""
    mounts = Mounts.below(root)
    request = BuildRequest(
        engine_key=key,
        model=ModelSource(path=f"/models/{model.name}"),
        model_digest=digest(model),
        args=BuildArgs(dtype="float32", max_batch_size=BATCH, max_input_len=256, max_seq_len=512),
        mapping=mapping,
        toolchain=Toolchain.TORCH,
        toolchain_version=toolchain_version(Toolchain.TORCH),
        target=Target(),
        output=engine_folder(key),
    )
    with contextlib.redirect_stdout(sys.stderr):
        for rank in range(mapping.world_size):
            job.build(request, rank, mounts, job.reporter(request, rank))
    return ServeRequest(
        engine_key=key,
        engine=engine_folder(key),
        model_name=MODEL,
        device="cpu",
        port=0,
        drain_seconds=0,
        mapping=mapping,
    )


@contextlib.contextmanager
def _served(root: Path, request: ServeRequest) -> Iterator[str]:
    """The image's own process, ready; yields its address."""
    file = root / "request.json"
    file.write_text(request.to_json())
    command = [sys.executable, "-m", "trtllm_engine", "serve", "--root", str(root), "--request", str(file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = f"http://127.0.0.1:{_event(process, 'listening')['port']}"
            _event(process, "ready")
            yield url
        finally:
            process.terminate()
            process.communicate()


def _event(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("{") and (fields := dict(json.loads(line)))["event"] == name:
            return fields
    raise RuntimeError(f"the server ended before {name!r}")


def _rounded(value: float) -> float:
    return round(value, 3)


if __name__ == "__main__":
    sys.exit(main())
