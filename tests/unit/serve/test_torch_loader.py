"""A published engine is served as the model's own library would answer; anything else is refused with the reason."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.models import tiny_llama
from tests.unit.serve.harness import MODEL, serving
from trtllm_engine.build import job
from trtllm_engine.build.toolchain import toolchain_version
from trtllm_engine.checkpoint.folder import digest
from trtllm_engine.contract import (
    BuildArgs,
    BuildRequest,
    ExitCode,
    Mapping,
    ModelSource,
    ServeRequest,
    Target,
    Toolchain,
    engine_folder,
)
from trtllm_engine.failure import Failure
from trtllm_engine.mounts import Mounts
from trtllm_engine.serve.torch_loader import load_engine

KEY = "abc123"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mounts with a tiny model and its published engine."""
    root = tmp_path_factory.mktemp("root")
    mounts = Mounts.below(root)
    model = tiny_llama(mounts.models / "tiny")
    request = BuildRequest(
        engine_key=KEY,
        model=ModelSource(path="/models/tiny"),
        model_digest=digest(model),
        args=BuildArgs(dtype="float32", max_batch_size=4, max_input_len=80, max_seq_len=96),
        mapping=Mapping(),
        toolchain=Toolchain.TORCH,
        toolchain_version=toolchain_version(Toolchain.TORCH),
        target=Target(),
        output=engine_folder(KEY),
    )
    job.build(request, 0, mounts, job.reporter(request, 0))
    return root


@pytest.fixture
def store(root: Path, tmp_path: Path) -> Path:
    """A copy of the published engine that a test may spoil."""
    shutil.copytree(root / "store", tmp_path / "store")
    return tmp_path / "store"


REQUEST = ServeRequest(engine_key=KEY, engine=engine_folder(KEY), model_name=MODEL, device="cpu")


def quiet(percent: float, detail: str) -> None:
    """Nobody listens."""


def refusal(store: Path, request: ServeRequest = REQUEST) -> Failure:
    with pytest.raises(Failure) as refused:
        load_engine(request, store, quiet)
    return refused.value


async def test_a_served_chat_answers_as_transformers_does(root: Path) -> None:
    question = "the red engine of token cache"
    tokenizer = AutoTokenizer.from_pretrained(root / "models" / "tiny")
    model = AutoModelForCausalLM.from_pretrained(root / "models" / "tiny", dtype=torch.float32)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
    )
    prompt = tokenizer.encode(text, add_special_tokens=False)
    expected = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0, len(prompt) :]

    async with serving(load_engine(REQUEST, root / "store", quiet)) as server:
        answer = await server.client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": question}], max_tokens=24, temperature=0
        )
    shown = str(tokenizer.decode(expected, skip_special_tokens=True))
    assert answer.choices[0].message.content == shown.rstrip("\ufffd")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), len(expected))


async def test_a_served_engine_has_the_limits_that_it_was_built_with(root: Path) -> None:
    loaded = load_engine(REQUEST, root / "store", quiet)
    runtime = loaded.runtime
    assert (runtime.max_batch_size, runtime.max_input_len, runtime.max_seq_len) == (4, 80, 96)
    assert (runtime.name, runtime.device) == ("torch-cpu", "cpu")
    async with serving(loaded) as server:
        response = await server.http.post("/v1/completions", json={"model": MODEL, "prompt": [5] * 81})
    assert "81 tokens, but this engine takes at most 80 in a prompt" in response.json()["error"]["message"]


def test_loading_reports_rising_percentages(root: Path) -> None:
    seen: list[float] = []
    load_engine(REQUEST, root / "store", lambda percent, detail: seen.append(percent))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 99.0)


def cut(engine: Path) -> None:
    (engine / "rank0000.engine").write_bytes((engine / "rank0000.engine").read_bytes()[:-1])


def alter(engine: Path) -> None:
    data = bytearray((engine / "rank0000.engine").read_bytes())
    data[-1] ^= 1
    (engine / "rank0000.engine").write_bytes(data)


def without(name: str) -> Callable[[Path], None]:
    return lambda engine: (engine / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "file"),
    [
        pytest.param(cut, "rank0000.engine", id="cut"),
        pytest.param(alter, "rank0000.engine", id="altered"),
        pytest.param(without("rank0000.engine"), "rank0000.engine", id="missing"),
        pytest.param(without("rank0000.json"), "rank0000.json", id="no record"),
        pytest.param(without("config.json"), "config.json", id="no config"),
        pytest.param(without("tokenizer.json"), "tokenizer.json", id="no tokenizer"),
        pytest.param(shutil.rmtree, "config.json", id="no folder"),
    ],
)
def test_a_bad_file_is_corrupt_and_named(store: Path, spoil: Callable[[Path], None], file: str) -> None:
    spoil(store / engine_folder(KEY))
    failure = refusal(store)
    assert (failure.code, failure.field) == (ExitCode.CORRUPT_INPUT, file)


@pytest.mark.parametrize(
    ("change", "code", "field", "message"),
    [
        ({"engine_key": "other"}, ExitCode.CORRUPT_INPUT, "config.json", "the request asks for other"),
        ({"engine": "../elsewhere"}, ExitCode.BAD_REQUEST, "engine", "leads out of the volume"),
        ({"device": "tpu"}, ExitCode.BAD_REQUEST, "device", "'tpu' is not one of auto, cpu, cuda"),
        ({"mapping": Mapping(tp=2)}, ExitCode.BAD_REQUEST, "mapping", "built for tp1 pp1 cp1, the request says tp2"),
    ],
)
def test_a_request_that_does_not_fit_the_engine_is_refused(
    root: Path, change: dict[str, object], code: ExitCode, field: str, message: str
) -> None:
    failure = refusal(root / "store", dataclasses.replace(REQUEST, **change))  # type: ignore[arg-type]
    assert (failure.code, failure.field) == (code, field)
    assert message in failure.message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_refused_with_what_to_do(root: Path) -> None:
    failure = refusal(root / "store", dataclasses.replace(REQUEST, device="cuda"))
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "device")
    assert "set serving.device to auto or cpu" in failure.message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"toolchain": "torch"', '"toolchain": "tensorrt_rtx"', "serving TensorRT plans needs the GPU runtime"),
        ('"toolchain": "torch"', '"toolchain": "tensorrt_llm"', "served by trtllm-serve"),
    ],
)
def test_what_can_not_be_executed_here_is_unsupported(store: Path, old: str, new: str, message: str) -> None:
    config = store / engine_folder(KEY) / "config.json"
    config.write_text(config.read_text().replace(old, new))
    failure = refusal(store)
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "engine")
    assert message in failure.message
