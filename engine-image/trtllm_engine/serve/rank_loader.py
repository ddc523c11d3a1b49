"""Loads a rank of a published engine of the `torch` toolchain; refuses what can not be executed here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from safetensors import safe_open

from trtllm_engine.build.engine_folder import EngineFacts, EngineFolder, read_engine
from trtllm_engine.build.verify import verify
from trtllm_engine.contract import ExitCode, Mapping, ServeRequest, Toolchain, rank_file
from trtllm_engine.failure import Failure
from trtllm_engine.network.collectives import Alone, Distributed
from trtllm_engine.network.rank import Rank
from trtllm_engine.network.torch_decoder import TorchDecoder
from trtllm_engine.serve.load import Report
from trtllm_engine.serve.placement import RANKS_PER_POD, Placement
from trtllm_engine.serve.torch_runtime import TorchRuntime, choose_device

DTYPES: Final = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

VERIFIED_PERCENT: Final = 40.0
"""Reading the file once to verify it is a good part of the loading; the rest is its tensors."""


def open_engine(request: ServeRequest, store: Path) -> EngineFolder:
    """The engine at `store / request.engine`.

    Raises `Failure`: CORRUPT_INPUT naming the file, UNSUPPORTED or BAD_REQUEST naming the request's field.
    """
    engine = read_engine(_inside(store, request.engine))
    _check(request, engine.facts)
    return engine


def load_rank(
    engine: EngineFolder, device: str, placement: Placement, index: int, meet: Callable[[], str], report: Report
) -> TorchRuntime:
    """Verify and load one rank. `meet` is asked where the ranks meet, when this one has its weights.

    Raises `Failure`: what `open_engine` raises.
    """
    device = _device(choose_device(device), placement.local(index))
    report(2.0, "verifying the engine's files")
    verify(engine.path, [index])
    weights = _weights(engine, index, device, report)
    args = engine.facts.args
    rank = Rank(mapping=engine.facts.mapping, index=index)
    decoder = TorchDecoder(
        engine.config,
        weights,
        DTYPES[args.dtype],
        device,
        args.max_batch_size,
        args.max_seq_len,
        rank,
        Distributed(rank, device, meet()) if placement.world_size > 1 else Alone(),
    )
    return TorchRuntime(decoder, args.max_input_len)


def _device(kind: str, local: int) -> str:
    """Each rank of a pod has the GPU of its place; NCCL wants it to be the current one."""
    if kind == "cpu":
        return kind
    if local >= torch.cuda.device_count():
        raise Failure(
            ExitCode.BAD_REQUEST,
            f"environment: this pod's rank {local} has no GPU: there are {torch.cuda.device_count()}",
            field=RANKS_PER_POD,
        )
    torch.cuda.set_device(local)
    return f"{kind}:{local}"


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
    if facts.args.dtype not in DTYPES:
        raise Failure(
            ExitCode.UNSUPPORTED, f"dtype {facts.args.dtype!r} is not one of {', '.join(DTYPES)}", field="args.dtype"
        )


def _weights(engine: EngineFolder, rank: int, device: str, report: Report) -> dict[str, torch.Tensor]:
    """Every tensor of a rank; on the CPU they stay in the mapped file, and replicas on a node share its pages."""
    weights: dict[str, torch.Tensor] = {}
    with safe_open(str(engine.path / rank_file(rank)), framework="pt", device=device) as tensors:
        names = list(tensors.keys())
        for done, name in enumerate(names, start=1):
            weights[name] = tensors.get_tensor(name)
            percent = VERIFIED_PERCENT + (99.0 - VERIFIED_PERCENT) * done / len(names)
            report(percent, f"tensor {done}/{len(names)}")
    return weights


def _words(mapping: Mapping) -> str:
    return f"tp{mapping.tp} pp{mapping.pp} cp{mapping.cp}"
