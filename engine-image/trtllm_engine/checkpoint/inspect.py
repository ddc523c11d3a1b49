"""What a checkpoint says about itself.

Reads configs and headers only, and does without torch, which takes seconds to load.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from trtllm_engine.checkpoint.folder import CONFIG, TOKENIZER, digest, read_headers, read_json
from trtllm_engine.checkpoint.safetensors_header import ITEM_BITS, Header, TensorInfo
from trtllm_engine.checkpoint.stored_scheme import StoredScheme, method_of, read_stored_scheme
from trtllm_engine.contract import REASON_LIMIT, ExitCode, ModelFacts, QuantFacts
from trtllm_engine.contract import Mapping as ParallelMapping
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.families import family_of, read_config
from trtllm_engine.network.parameters import IN_EXPERTS, MATRICES, Shape, parameters
from trtllm_engine.network.scheme import check_scheme

DTYPES: Final[Mapping[str, str]] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def inspect_model(folder: Path, commit: str | None = None, *, weightless: bool = False) -> ModelFacts:
    """The facts of a Hugging Face checkpoint whose every tensor is there with the right shape.

    `weightless`: its weights are not looked at, and counted as config.json makes them.

    Raises `Failure`: UNSUPPORTED for another format or architecture, CORRUPT_INPUT for files that contradict
    themselves or each other, MODEL_UNAVAILABLE for missing ones.
    """
    raw = read_json(folder / CONFIG)
    refuse_other_formats(raw)
    config = read_config(raw)
    if not (folder / TOKENIZER).is_file():
        raise Failure(
            ExitCode.MODEL_UNAVAILABLE,
            f"{folder / TOKENIZER} does not exist, and no server can answer without it; "
            "save the tokenizer beside the model: AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
            field="model",
        )
    used, stored, unread = (_imagined(config, raw), None, None) if weightless else _stored(config, raw, folder)
    return ModelFacts(
        format="hf",
        architecture=config.architecture,
        family=config.family,
        dtype=_stored_dtype(used),
        quantization=method_of(raw, folder),
        quant=None if stored is None else QuantFacts(algo=stored.scheme.algo, group_size=stored.scheme.group),
        quant_unread=unread,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_positions,
        tied_embeddings=config.tied_embeddings,
        experts=config.experts,
        experts_per_token=config.experts_per_token,
        expert_intermediate_size=config.expert_intermediate_size,
        expert_parameters=sum(math.prod(shape) for role, _, shape in parameters(config) if role in IN_EXPERTS),
        sliding_window=config.sliding_window,
        windowed_layers=len(config.windowed_layers),
        parameters=sum(math.prod(shape) for _, _, shape in parameters(config)),
        weight_bytes=sum(info.bytes for info in used),
        commit=commit,
        digest=digest(folder),
    )


def refuse_other_formats(raw: Mapping[str, object]) -> None:
    """TensorRT-LLM's own folders are told apart by config.json, and not read."""
    if "pretrained_config" in raw and "build_config" in raw:
        raise _other_format("a TensorRT-LLM engine", "trtllm_engine")
    if "architecture" in raw and "architectures" not in raw:
        raise _other_format("a TensorRT-LLM checkpoint", "trtllm_checkpoint")


def check_tensors(
    config: DecoderConfig, headers: Mapping[str, Header], stored: StoredScheme | None = None
) -> list[TensorInfo]:
    """The tensors that the decoder uses; each must be there once with its shape, in a type that can be read.

    `stored`: how the matrices of the layers are quantised; then all of them must be, or it is UNSUPPORTED.
    """
    family = family_of(config.architecture)
    places: dict[str, tuple[str, TensorInfo]] = {}
    for file, header in headers.items():
        for name, info in header.tensors.items():
            if name in places:
                raise _corrupt(file, f"tensor {name} is also in {places[name][0]}")
            places[name] = (file, info)
    needed: dict[str, tuple[Shape, tuple[str, ...]]] = {}
    for role, layer, _ in parameters(config):
        for place in family.places(config, role, layer):
            if stored is None or role not in MATRICES:
                needed[place.tensor] = (place.shape, tuple(DTYPES))
            elif place.tensor in places and places[place.tensor][1].dtype in DTYPES:
                raise Failure(
                    ExitCode.UNSUPPORTED,
                    f"{places[place.tensor][0]}: tensor {place.tensor} is not quantised, though others are; "
                    "read are checkpoints with all matrices of the layers quantised, or none",
                    field="model",
                )
            else:
                needed |= stored.tensors(place)
    used: list[TensorInfo] = []
    for name, (shape, dtypes) in needed.items():
        if name not in places:
            raise _corrupt(", ".join(headers), f"tensor {name} of shape {list(shape)} is missing")
        file, info = places[name]
        if info.shape != shape and (info.shape, shape) != ((), (1,)):  # a number by itself may have no dimension
            raise _corrupt(file, f"tensor {name} has shape {list(info.shape)}, but config.json makes it {list(shape)}")
        if info.dtype not in dtypes:
            raise _corrupt(file, f"tensor {name} has dtype {info.dtype}; allowed are {', '.join(dtypes)}")
        used.append(info)
    return used


def _stored(
    config: DecoderConfig, raw: Mapping[str, object], folder: Path
) -> tuple[list[TensorInfo], StoredScheme | None, str | None]:
    """The tensors that count, and how they are quantised; if that is not read: all of them, unchecked, and why."""
    headers = read_headers(folder)
    try:
        stored = read_stored_scheme(raw, folder)
        check_scheme(config, ParallelMapping(), None if stored is None else stored.scheme, chosen=False)
        return check_tensors(config, headers, stored), stored, None
    except Failure as failure:
        if failure.code is not ExitCode.UNSUPPORTED:
            raise
        everything = [info for header in headers.values() for info in header.tensors.values()]
        reason, _, _ = failure.message.partition("; ")
        return everything, None, reason.encode()[:REASON_LIMIT].decode(errors="ignore")


def _imagined(config: DecoderConfig, raw: Mapping[str, object]) -> list[TensorInfo]:
    """What the tensors would be, in the type that config.json names."""
    named = raw.get("dtype", raw.get("torch_dtype"))
    dtype = {name: spelling for spelling, name in DTYPES.items()}.get(str(named), "F32")
    sizes = (math.prod(shape) for _, _, shape in parameters(config))
    return [TensorInfo(dtype, (size,), 0, size * ITEM_BITS[dtype] // 8) for size in sizes]


def _stored_dtype(tensors: Iterable[TensorInfo]) -> str:
    """The floating type that most bytes have."""
    sizes: Counter[str] = Counter()
    for info in tensors:
        if info.dtype in DTYPES:
            sizes[DTYPES[info.dtype]] += info.bytes
    return sizes.most_common(1)[0][0] if sizes else "float32"


def _other_format(what: str, name: str) -> Failure:
    return Failure(
        ExitCode.UNSUPPORTED,
        f"config.json: this is {what} (format {name}), which is not read yet; "
        "give the Hugging Face checkpoint that it was made from",
        field="model",
    )


def _corrupt(file: str, message: str) -> Failure:
    return Failure(ExitCode.CORRUPT_INPUT, f"{file}: {message}", field=file)
