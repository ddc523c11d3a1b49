"""What a decoder looks like, in our own words, whatever the checkpoint calls it."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure

JsonObject = Mapping[str, object]

ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


class Activation(enum.Enum):
    """What is applied to the gate of an MLP."""

    SILU = "silu"
    GELU_TANH = "gelu_pytorch_tanh"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched for longer contexts; `type` is one of `ROPE_TYPES`.

    - `linear`: all divided by `factor`.
    - `dynamic`: stretched only beyond `max_positions`, which no engine goes: the same as `default`.
    - `llama3`: wavelengths longer than `original_max_positions / low_frequency_factor` are stretched by `factor`, those
      shorter than `original_max_positions / high_frequency_factor` are kept, and the band between is interpolated.
    - `yarn`: dimensions that turn fewer than `beta_slow` times in `original_max_positions` are stretched by `factor`,
      those that turn more than `beta_fast` times are kept, and a linear ramp is between.
    - `longrope`: each frequency divided by a number of its own: `short_factors`, or `long_factors` in an engine for
      sequences longer than `original_max_positions`.

    Cosines and sines of the last two are multiplied by `attention_factor`.
    """

    type: str = "default"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_max_positions: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    """Whether the ends of the ramp are whole dimensions."""
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A decoder-only transformer with RMS norm, rotary positions, grouped-query attention and gated MLPs."""

    family: str
    architecture: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    """Width of the dense MLP."""
    vocab_size: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling
    max_positions: int
    tied_embeddings: bool
    query_bias: bool = False
    """Bias of the query, key and value projections."""
    output_bias: bool = False
    """Bias of the attention's output projection."""
    mlp_bias: bool = False
    eos_token_ids: tuple[int, ...] = ()

    activation: Activation = Activation.SILU
    head_norms: bool = False
    """Queries and keys are normalised, each head by itself, before they are rotated."""
    post_norms: bool = False
    """What attention and MLP give is normalised before it is added."""
    norm_offset: float = 0.0
    """Added to the weights of all norms."""
    embedding_scale: float | None = None
    """Factor of the embedded tokens."""
    query_scale: float | None = None
    """Factor of the attention scores, where it is not 1 / sqrt(head_dim)."""
    score_cap: float | None = None
    """Attention scores x become cap * tanh(x / cap)."""
    logit_cap: float | None = None
    """So do logits."""
    rotary_dim: int | None = None
    """How many of a head's dimensions are rotated, the first ones; all where it is not said."""
    sliding_window: int | None = None
    """Positions that a query of a windowed layer sees, its own included."""
    windowed_layers: tuple[int, ...] = ()
    local_rope_theta: float | None = None
    """Base of the windowed layers, without scaling, where they have one of their own."""
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate_size: int = 0
    normalized_routing: bool = True
    """The weights of a token's experts add up to 1."""
    sparse_layers: tuple[int, ...] = ()
    """Layers with a mixture of experts in place of the dense MLP."""

    @property
    def attention_scale(self) -> float:
        return float(self.head_dim**-0.5) if self.query_scale is None else self.query_scale

    @property
    def rotated(self) -> int:
        """Dimensions of a head that are rotated."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    def window(self, layer: int) -> int | None:
        """Positions that a query of the layer sees; None: all."""
        return self.sliding_window if layer in self.windowed_layers else None

    def is_local(self, layer: int) -> bool:
        """Whether the layer's rotary base is `local_rope_theta`."""
        return self.local_rope_theta is not None and layer in self.windowed_layers

    def is_sparse(self, layer: int) -> bool:
        return layer in self.sparse_layers


class ConfigReader:
    """Typed access to a `config.json`; a missing or wrong value is CORRUPT_INPUT naming the key."""

    def __init__(self, raw: JsonObject, where: str = "config.json") -> None:
        self._raw = raw
        self._where = where

    def __contains__(self, key: str) -> bool:
        return self._raw.get(key) is not None

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise self._wrong(key, "a positive integer", value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._wrong(key, "a positive number", value)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """One integer, a list of them, or nothing."""
        value = self._raw.get(key)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in values):
            raise self._wrong(key, "an integer or a list of integers", value)
        return tuple(values)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of positive numbers."""
        value = self._raw.get(key)
        if not isinstance(value, list) or not all(type(item) in (int, float) and item > 0 for item in value):
            raise self._wrong(key, "a list of positive numbers", value)
        return tuple(float(item) for item in value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._raw.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of strings", value)
        return tuple(value)

    def keys(self, key: str) -> list[str]:
        """The keys of the object under `key`; none if it is absent."""
        return [*self.section(key)._raw]

    def section(self, key: str) -> ConfigReader:
        """The object under `key`; empty if it is absent."""
        value = self._raw.get(key)
        if value is None:
            return ConfigReader({}, f"{self._where}: {key}")
        if not isinstance(value, dict):
            raise self._wrong(key, "an object", value)
        return ConfigReader(value, f"{self._where}: {key}")

    def _get(self, key: str, default: object) -> object:
        value = self._raw.get(key)
        return default if value is None else value

    def _wrong(self, key: str, expected: str, value: object) -> Failure:
        found = "it is missing" if value is None else f"got {value!r}"
        return Failure(ExitCode.CORRUPT_INPUT, f"{self._where}: {key} must be {expected}; {found}", field="config.json")


def read_rope(reader: ConfigReader, max_positions: int, default_theta: float = 10000.0) -> tuple[float, RopeScaling]:
    """Base and scaling, from `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before it).

    Raises UNSUPPORTED for scalings other than `ROPE_TYPES`.
    """
    section = reader.section("rope_parameters" if "rope_parameters" in reader else "rope_scaling")
    return read_rope_section(reader, section, max_positions, default_theta)


def read_rope_section(
    reader: ConfigReader, section: ConfigReader, max_positions: int, default_theta: float
) -> tuple[float, RopeScaling]:
    """The same where the section is elsewhere; it wins over the keys beside it."""
    theta = section.number("rope_theta", reader.number("rope_theta", default_theta))
    kind = section.text("rope_type", section.text("type", "default"))
    if kind not in ROPE_TYPES:
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"config.json: rotary scaling {kind!r} is not implemented; implemented are {', '.join(ROPE_TYPES)}",
            field="config.json",
        )
    if kind in ("default", "dynamic"):
        return theta, RopeScaling(type=kind)
    if kind == "linear":
        return theta, RopeScaling(type=kind, factor=section.number("factor"))
    original = section.integer(
        "original_max_position_embeddings", reader.integer("original_max_position_embeddings", max_positions)
    )
    if kind == "llama3":
        return theta, RopeScaling(
            type=kind,
            factor=section.number("factor"),
            low_frequency_factor=section.number("low_freq_factor"),
            high_frequency_factor=section.number("high_freq_factor"),
            original_max_positions=original,
        )
    factor = section.number("factor", max_positions / original)
    if kind == "yarn":
        return theta, RopeScaling(
            type=kind,
            factor=factor,
            original_max_positions=original,
            beta_fast=section.number("beta_fast", 32.0),
            beta_slow=section.number("beta_slow", 1.0),
            truncate=section.flag("truncate", True),
            attention_factor=_yarn_attention_factor(section, factor),
        )
    return theta, RopeScaling(
        type=kind,
        factor=factor,
        original_max_positions=original,
        short_factors=section.numbers("short_factor"),
        long_factors=section.numbers("long_factor"),
        attention_factor=section.number(
            "attention_factor", 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
        ),
    )


def _yarn_attention_factor(section: ConfigReader, factor: float) -> float:
    def grown(by: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    if "attention_factor" in section:
        return section.number("attention_factor")
    if "mscale" in section and "mscale_all_dim" in section:
        return grown(section.number("mscale")) / grown(section.number("mscale_all_dim"))
    return grown(1.0)
