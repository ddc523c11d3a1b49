"""Loads a published engine of the `torch` toolchain; refuses what can not be executed here, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch
from safetensors import safe_open

from trtllm_engine.build.engine_folder import EngineFacts, EngineFolder, read_engine
from trtllm_engine.build.verify import verify
from trtllm_engine.checkpoint.folder import read_json
from trtllm_engine.contract import ExitCode, Mapping, ServeRequest, Toolchain, rank_file
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import ConfigReader
from trtllm_engine.network.torch_decoder import TorchDecoder
from trtllm_engine.serve.folder_tokenizer import FolderTokenizer
from trtllm_engine.serve.load import Loaded, Report
from trtllm_engine.serve.torch_runtime import TorchRuntime, choose_device

GENERATION_CONFIG: Final = "generation_config.json"

DTYPES: Final = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

VERIFIED_PERCENT: Final = 40.0
"""Reading the file once to verify it is a good part of the loading; the rest is its tensors."""


def load_engine(request: ServeRequest, store: Path, report: Report) -> Loaded:
    """Verify and load the engine at `store / request.engine`.

    Raises `Failure`: CORRUPT_INPUT naming the file, UNSUPPORTED or BAD_REQUEST naming the request's field.
    """
    report(0.0, "reading the engine's config")
    folder = _inside(store, request.engine)
    engine = read_engine(folder)
    _check(request, engine.facts)
    device = choose_device(request.device)
    report(1.0, "verifying the engine's files")
    verify(folder, [0])
    report(VERIFIED_PERCENT, "loading the tokenizer")
    tokenizer = FolderTokenizer(folder)
    weights = _weights(engine, device, report)
    args = engine.facts.args
    decoder = TorchDecoder(engine.config, weights, DTYPES[args.dtype], device, args.max_batch_size, args.max_seq_len)
    return Loaded(TorchRuntime(decoder, args.max_input_len), tokenizer, _end_tokens(engine, tokenizer))


def _inside(store: Path, relative: str) -> Path:
    folder = store / relative
    if not folder.resolve().is_relative_to(store.resolve()):
        raise Failure(ExitCode.BAD_REQUEST, f"engine {relative!r} leads out of the volume", field="engine")
    return folder


def _check(request: ServeRequest, facts: EngineFacts) -> None:
    """The request and the engine belong together, and this image can execute it."""
    if facts.engine_key != request.engine_key:
        raise Failure(
            ExitCode.CORRUPT_INPUT,
            f"config.json: the folder holds engine {facts.engine_key}, the request asks for {request.engine_key}",
            field="config.json",
        )
    if facts.toolchain is Toolchain.TENSORRT_LLM:
        raise Failure(ExitCode.UNSUPPORTED, "engines of tensorrt_llm are served by trtllm-serve", field="engine")
    if facts.toolchain is not Toolchain.TORCH:
        raise Failure(
            ExitCode.UNSUPPORTED,
            "built, not executed here: serving TensorRT plans needs the GPU runtime, which is not in this version; "
            "the toolchain torch can be served",
            field="engine",
        )
    if request.mapping != facts.mapping:
        raise Failure(
            ExitCode.BAD_REQUEST,
            f"mapping: the engine was built for {_words(facts.mapping)}, the request says {_words(request.mapping)}",
            field="mapping",
        )
    if facts.mapping.world_size > 1:
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"mapping: {_words(facts.mapping)} needs {facts.mapping.world_size} ranks that talk to each other, and "
            "this version serves the toolchain torch on one rank; set the parallel sizes to 1",
            field="mapping",
        )
    if facts.args.dtype not in DTYPES:
        raise Failure(
            ExitCode.UNSUPPORTED, f"dtype {facts.args.dtype!r} is not one of {', '.join(DTYPES)}", field="args.dtype"
        )


def _weights(engine: EngineFolder, device: str, report: Report) -> dict[str, torch.Tensor]:
    """Every tensor of rank 0; on the CPU they stay in the mapped file, and replicas on a node share its pages."""
    weights: dict[str, torch.Tensor] = {}
    with safe_open(str(engine.path / rank_file(0)), framework="pt", device=device) as tensors:
        names = list(tensors.keys())
        for done, name in enumerate(names, start=1):
            weights[name] = tensors.get_tensor(name)
            percent = VERIFIED_PERCENT + (99.0 - VERIFIED_PERCENT) * done / len(names)
            report(percent, f"tensor {done}/{len(names)}")
    return weights


def _end_tokens(engine: EngineFolder, tokenizer: FolderTokenizer) -> frozenset[int]:
    """All that may end an answer: the two configs and the tokenizer often name different ones, all of them meant."""
    ends = {*engine.config.eos_token_ids, *tokenizer.end_tokens}
    if (file := engine.path / GENERATION_CONFIG).is_file():
        ends |= {*ConfigReader(read_json(file), GENERATION_CONFIG).integers("eos_token_id")}
    return frozenset(ends)


def _words(mapping: Mapping) -> str:
    return f"tp{mapping.tp} pp{mapping.pp} cp{mapping.cp}"
