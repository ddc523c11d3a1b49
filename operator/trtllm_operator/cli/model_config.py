"""What a `config.json` alone says about a model: for checks before anything is downloaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trtllm_engine.contract import ModelFacts

from .failure import BadInput

CONFIG: Final = "config.json"
NO_DIGEST: Final = "sha256:" + "0" * 64
"""Only the checkpoint itself has one."""
DTYPE_BYTES: Final[Mapping[str, int]] = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the sizes of a config.json do not say about an architecture."""

    family: str
    attention_bias: bool = False
    """Of query, key and value, unless the file says `attention_bias`."""
    norms: int = 2
    """Of each layer, as wide as the residual stream."""
    head_norms: bool = False
    """Whether query and key have a norm of the width of one head."""
    tied: bool = False
    """Whether embeddings are tied when the file does not say."""


SHAPES: Final[Mapping[str, Shape]] = {
    "LlamaForCausalLM": Shape(family="llama"),
    "MistralForCausalLM": Shape(family="mistral"),
    "Qwen2ForCausalLM": Shape(family="qwen2", attention_bias=True),
}
"""The architectures that the engine image builds."""


def read_model_config(path: Path) -> ModelFacts:
    """Facts of the model whose config.json this is, or whose folder. Raises `BadInput`.

    The digest is `NO_DIGEST`; the number of parameters is computed from the sizes.
    """
    file = path / CONFIG if path.is_dir() else path
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(
            f"{file}: {(error.strerror or str(error)).lower()}; name a model's folder or config.json"
        ) from error
    except ValueError as error:
        raise BadInput(f"{file}: is no JSON: {error}") from error
    if not isinstance(raw, dict):
        raise BadInput(f"{file}: is no object; name the config.json of a model")
    return model_facts(raw, str(file))


def model_facts(raw: Mapping[str, Any], where: str) -> ModelFacts:
    """The three formats are told apart by their keys, never by guess (rules FMT-2 to FMT-4)."""
    if "pretrained_config" in raw and "build_config" in raw:
        return _trtllm(_Reader(raw["pretrained_config"], f"{where}: pretrained_config"), "trtllm_engine")
    if "architecture" in raw and "dtype" in raw:
        return _trtllm(_Reader(raw, where), "trtllm_checkpoint")
    return _hugging_face(_Reader(raw, where))


def _hugging_face(config: _Reader) -> ModelFacts:
    architectures = config.raw.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        raise BadInput(f"{config.where}: architectures must list one name; name the config.json of a language model")
    shape = SHAPES.get(architectures[0])
    quantization = config.raw.get("quantization_config")
    return _facts(
        config,
        format="hf",
        architecture=architectures[0],
        shape=shape,
        dtype=config.dtype("dtype", "torch_dtype"),
        quantization=str(quantization.get("quant_method", "unknown")) if isinstance(quantization, dict) else None,
        head_dim="head_dim",
    )


def _trtllm(config: _Reader, form: str) -> ModelFacts:
    quantization = config.raw.get("quantization")
    algorithm = quantization.get("quant_algo") if isinstance(quantization, dict) else None
    architecture = config.raw.get("architecture")
    return _facts(
        config,
        format=form,
        architecture=str(architecture),
        shape=SHAPES.get(str(architecture)),
        dtype=config.dtype("dtype"),
        quantization=None if algorithm is None else str(algorithm),
        head_dim="head_size",
    )


def _facts(
    config: _Reader,
    *,
    format: str,
    architecture: str,
    shape: Shape | None,
    dtype: str,
    quantization: str | None,
    head_dim: str,
) -> ModelFacts:
    known = shape or Shape(family="")
    hidden, layers = config.integer("hidden_size"), config.integer("num_hidden_layers")
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", heads)
    head = config.integer(head_dim, hidden // heads)
    intermediate = config.integer("intermediate_size", 4 * hidden)
    vocabulary = config.integer("vocab_size")
    tied = config.flag("tie_word_embeddings", known.tied)
    window, windowed = _window(config, layers)
    query, kv = heads * head, kv_heads * head
    attention = 2 * hidden * query + 2 * hidden * kv
    if config.flag("attention_bias", known.attention_bias):
        attention += query + 2 * kv + (0 if known.attention_bias else hidden)
    if known.head_norms:
        attention += 2 * head
    experts = config.integer("num_local_experts", config.integer("num_experts", 0))
    expert_width = config.integer("moe_intermediate_size", intermediate) if experts else 0
    expert_parameters = layers * experts * 3 * hidden * expert_width
    dense = 0 if experts else layers * 3 * hidden * intermediate
    if config.flag("mlp_bias", False):
        dense += layers * (2 * intermediate + hidden)
    parameters = (
        vocabulary * hidden * (1 if tied else 2)
        + layers * (attention + known.norms * hidden + hidden * experts)
        + hidden
        + dense
        + expert_parameters
    )
    return ModelFacts(
        format=format,
        architecture=architecture,
        family=shape.family if shape else None,
        dtype=dtype,
        quantization=quantization,
        hidden_size=hidden,
        num_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head,
        intermediate_size=intermediate,
        vocab_size=vocabulary,
        max_position_embeddings=config.integer("max_position_embeddings", 2048),
        tied_embeddings=tied,
        experts=experts,
        experts_per_token=config.integer("num_experts_per_tok", 0) if experts else 0,
        expert_intermediate_size=expert_width,
        expert_parameters=expert_parameters,
        sliding_window=window,
        windowed_layers=windowed,
        parameters=parameters,
        weight_bytes=parameters * DTYPE_BYTES[dtype],
        digest=NO_DIGEST,
    )


def _window(config: _Reader, layers: int) -> tuple[int | None, int]:
    """Width of the sliding window, and how many layers have it."""
    window = config.integer("sliding_window", 0)
    if not window or not config.flag("use_sliding_window", True):
        return None, 0
    kinds = config.raw.get("layer_types")
    if isinstance(kinds, list):
        windowed = sum(kind == "sliding_attention" for kind in kinds)
        return (window, windowed) if windowed else (None, 0)
    return window, layers


class _Reader:
    """Typed access; a wrong value is `BadInput` naming the key."""

    def __init__(self, raw: Any, where: str) -> None:
        if not isinstance(raw, dict):
            raise BadInput(f"{where}: must be an object")
        self.raw: Mapping[str, Any] = raw
        self.where = where

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.raw.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0 or (value == 0 and default is None):
            found = "is missing" if value is None else f"is {json.dumps(value)}"
            raise BadInput(f"{self.where}: {key} {found}; it must be a positive integer")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.raw.get(key)
        return value if isinstance(value, bool) else default

    def dtype(self, *keys: str) -> str:
        """The stored type: transformers has named the key differently over time."""
        value = next((self.raw[key] for key in keys if self.raw.get(key) is not None), "float32")
        text = str(value).removeprefix("torch.")
        if text not in DTYPE_BYTES:
            raise BadInput(f"{self.where}: {keys[0]} is {value!r}; possible are {', '.join(DTYPE_BYTES)}")
        return text
