"""What a `config.json` alone says about a model: for checks before anything is downloaded."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trtllm_engine.contract import ModelFacts

from .failure import BadInput
from .stored_quant import method_of, stored_quant

CONFIG: Final = "config.json"
MODELOPT_CONFIG: Final = "hf_quant_config.json"
NO_DIGEST: Final = "sha256:" + "0" * 64
"""Only the checkpoint itself has one."""
DTYPE_BYTES: Final[Mapping[str, int]] = {"float32": 4, "float16": 2, "bfloat16": 2}


class Biases(enum.Enum):
    """Which projections have one."""

    NONE = "none"
    QUERY = "query, key and value"
    FLAGGED = "all of attention if `attention_bias` says so, and the MLP's if `mlp_bias` does"


class Window(enum.Enum):
    """Which layers a `sliding_window` is for, unless `layer_types` says it."""

    NONE = "none"
    ALL = "all"
    FLAGGED = "all, if `use_sliding_window` says so"
    UPPER = "from layer `max_window_layers` on, if `use_sliding_window` says so"
    EVEN = "every other"
    PATTERN = "all but each `sliding_window_pattern`th"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the sizes of a config.json do not say about an architecture."""

    family: str | None = None
    """None: no toolchain builds it, and its size is that of a Llama of these sizes."""
    biases: Biases = Biases.NONE
    norms: int = 2
    """Of each layer, as wide as the residual stream."""
    head_norms: bool = False
    """Whether query and key have a norm of the width of one head."""
    head_dim: int | None = None
    """Width of a head that the file does not name; None: what divides the residual stream."""
    tied: bool = False
    """Whether embeddings are tied when the file does not say."""
    window: Window = Window.NONE
    window_size: int = 0
    """When the file does not say; 0: there is none."""
    experts: tuple[int, int, int] = (0, 0, 0)
    """Number, number per token, and width (0: the MLP's), when the file does not say."""


SHAPES: Final[Mapping[str, Shape]] = {
    "LlamaForCausalLM": Shape(family="llama", biases=Biases.FLAGGED),
    "MistralForCausalLM": Shape(family="mistral", window=Window.ALL, window_size=4096),
    "MixtralForCausalLM": Shape(family="mixtral", window=Window.ALL, experts=(8, 2, 0)),
    "Qwen2ForCausalLM": Shape(family="qwen2", biases=Biases.QUERY, window=Window.UPPER, window_size=4096),
    "Qwen3ForCausalLM": Shape(
        family="qwen3", biases=Biases.FLAGGED, head_norms=True, head_dim=128, window=Window.UPPER, window_size=4096
    ),
    "Qwen3MoeForCausalLM": Shape(
        family="qwen3_moe",
        biases=Biases.FLAGGED,
        head_norms=True,
        window=Window.FLAGGED,
        window_size=4096,
        experts=(128, 8, 768),
    ),
    "Gemma2ForCausalLM": Shape(
        family="gemma2",
        biases=Biases.FLAGGED,
        norms=4,
        head_dim=256,
        tied=True,
        window=Window.EVEN,
        window_size=4096,
    ),
    "Gemma3ForCausalLM": Shape(
        family="gemma3",
        biases=Biases.FLAGGED,
        norms=4,
        head_norms=True,
        head_dim=256,
        tied=True,
        window=Window.PATTERN,
        window_size=4096,
    ),
    "Phi3ForCausalLM": Shape(family="phi3", window=Window.ALL),
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
            f"{file}: {(error.strerror or str(error)).lower()}; name a model's folder, or a config.json"
        ) from error
    except ValueError as error:
        raise BadInput(f"{file}: is no JSON: {error}") from error
    if not isinstance(raw, dict):
        raise BadInput(f"{file}: is no object; name the config.json of a model")
    return model_facts(raw, str(file), _modelopt(file.parent / MODELOPT_CONFIG))


def _modelopt(file: Path) -> Mapping[str, Any] | None:
    """What ModelOpt wrote beside the model; None: it did not."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadInput(f"{file}: cannot be read: {error}; remove it, or mend it") from error
    return found if isinstance(found, dict) else {}


def model_facts(raw: Mapping[str, Any], where: str, modelopt: Mapping[str, Any] | None = None) -> ModelFacts:
    """The three formats are told apart by their keys, never by guess (rules FMT-2 to FMT-4).

    `modelopt`: what hf_quant_config.json beside the config.json holds, if it is there.
    """
    if "pretrained_config" in raw and "build_config" in raw:
        return _trtllm(_Reader(raw["pretrained_config"], f"{where}: pretrained_config"), "trtllm_engine")
    if "architecture" in raw and "dtype" in raw:
        return _trtllm(_Reader(raw, where), "trtllm_checkpoint")
    return _hugging_face(_Reader(raw, where), modelopt)


def _hugging_face(config: _Reader, modelopt: Mapping[str, Any] | None) -> ModelFacts:
    architectures = config.raw.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        raise BadInput(f"{config.where}: architectures must list one name; name the config.json of a language model")
    quant, unread = stored_quant(config.raw, modelopt)
    facts = _facts(
        config,
        format="hf",
        architecture=architectures[0],
        dtype=config.dtype("dtype", "torch_dtype"),
        quantization=method_of(config.raw, modelopt),
        head_dim="head_dim",
    )
    return dataclasses.replace(facts, quant=quant, quant_unread=unread)


def _trtllm(config: _Reader, form: str) -> ModelFacts:
    quantization = config.raw.get("quantization")
    algorithm = quantization.get("quant_algo") if isinstance(quantization, dict) else None
    architecture = config.raw.get("architecture")
    return _facts(
        config,
        format=form,
        architecture=str(architecture),
        dtype=config.dtype("dtype"),
        quantization=None if algorithm is None else str(algorithm),
        head_dim="head_size",
    )


def _facts(
    config: _Reader, *, format: str, architecture: str, dtype: str, quantization: str | None, head_dim: str
) -> ModelFacts:
    shape = SHAPES.get(architecture, Shape(biases=Biases.FLAGGED))
    hidden, layers = config.integer("hidden_size"), config.integer("num_hidden_layers")
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", heads)
    head = config.integer(head_dim, shape.head_dim or hidden // heads)
    intermediate, vocabulary = config.integer("intermediate_size", 4 * hidden), config.integer("vocab_size")
    tied = config.flag("tie_word_embeddings", shape.tied)
    longest = config.longest()
    window, windowed = _window(config, shape, layers, longest)
    experts, per_token, width, sparse = _experts(config, shape, layers, intermediate)
    expert_parameters = sparse * experts * 3 * hidden * width
    parameters = (
        vocabulary * hidden * (1 if tied else 2)
        + hidden
        + layers * (_attention(config, shape, hidden, heads * head, kv_heads * head, head) + shape.norms * hidden)
        + sparse * hidden * experts
        + expert_parameters
        + (layers - sparse) * _mlp(config, shape, hidden, intermediate)
    )
    return ModelFacts(
        format=format,
        architecture=architecture,
        family=shape.family,
        dtype=dtype,
        quantization=quantization,
        hidden_size=hidden,
        num_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head,
        intermediate_size=intermediate,
        vocab_size=vocabulary,
        max_position_embeddings=longest,
        tied_embeddings=tied,
        experts=experts,
        experts_per_token=per_token,
        expert_intermediate_size=width,
        expert_parameters=expert_parameters,
        sliding_window=window,
        windowed_layers=windowed,
        parameters=parameters,
        weight_bytes=parameters * DTYPE_BYTES[dtype],
        digest=NO_DIGEST,
    )


def _attention(config: _Reader, shape: Shape, hidden: int, query: int, kv: int, head: int) -> int:
    """Parameters of one layer's attention, its norms on the residual stream apart."""
    total = 2 * hidden * query + 2 * hidden * kv + (2 * head if shape.head_norms else 0)
    if shape.biases is Biases.QUERY:
        return total + query + 2 * kv
    flagged = shape.biases is Biases.FLAGGED and config.flag("attention_bias", False)
    return total + (query + 2 * kv + hidden if flagged else 0)


def _mlp(config: _Reader, shape: Shape, hidden: int, width: int) -> int:
    flagged = shape.family == "llama" and config.flag("mlp_bias", False)
    return 3 * hidden * width + (2 * width + hidden if flagged else 0)


def _experts(config: _Reader, shape: Shape, layers: int, intermediate: int) -> tuple[int, int, int, int]:
    """Number, number per token, width, and how many layers have any."""
    number, per_token, width = shape.experts
    if shape.family is not None and not number:
        return 0, 0, 0, 0
    experts = config.integer("num_local_experts", config.integer("num_experts", number))
    if not experts:
        return 0, 0, 0, 0
    dense, step = config.raw.get("mlp_only_layers") or (), config.integer("decoder_sparse_step", 1)
    sparse = sum(layer not in dense and (layer + 1) % step == 0 for layer in range(layers))
    return (
        experts,
        config.integer("num_experts_per_tok", per_token),
        config.integer("moe_intermediate_size", width or intermediate),
        sparse,
    )


def _window(config: _Reader, shape: Shape, layers: int, longest: int) -> tuple[int | None, int]:
    """Width of the sliding window, and how many layers have it; one that hides nothing is none."""
    absent = "sliding_window" in config.raw and config.raw["sliding_window"] is None
    size = 0 if absent else config.integer("sliding_window", shape.window_size)
    asked = shape.window in (Window.UPPER, Window.FLAGGED) and not config.flag("use_sliding_window", False)
    if shape.window is Window.NONE or not size or asked or (size >= longest and shape.window is not Window.PATTERN):
        return None, 0
    kinds = config.raw.get("layer_types")
    if isinstance(kinds, list) and shape.window not in (Window.ALL, Window.FLAGGED):
        windowed = sum(kind == "sliding_attention" for kind in kinds)
    elif shape.window is Window.UPPER:
        windowed = max(0, layers - config.integer("max_window_layers", 28))
    elif shape.window is Window.EVEN:
        windowed = -(-layers // 2)
    elif shape.window is Window.PATTERN:
        windowed = layers - layers // config.integer("sliding_window_pattern", 6)
    else:
        windowed = layers
    return (size, windowed) if windowed else (None, 0)


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

    def longest(self) -> int:
        """Tokens of the longest sequence; a config.json that asks for YaRN names the length before it."""
        most = self.integer("max_position_embeddings", 2048)
        scaling = self.raw.get("rope_parameters") or self.raw.get("rope_scaling")
        if not isinstance(scaling, dict) or scaling.get("rope_type", scaling.get("type")) != "yarn":
            return most
        before = scaling.get("original_max_position_embeddings", most)
        factor = scaling.get("factor", most / before)
        return max(most, int(factor * before))

    def dtype(self, *keys: str) -> str:
        """The stored type: transformers has named the key differently over time."""
        value = next((self.raw[key] for key in keys if self.raw.get(key) is not None), "float32")
        text = str(value).removeprefix("torch.")
        if text not in DTYPE_BYTES:
            raise BadInput(f"{self.where}: {keys[0]} is {value!r}; possible are {', '.join(DTYPE_BYTES)}")
        return text
