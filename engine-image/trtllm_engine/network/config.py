"""What a decoder looks like, in our own words, whatever the checkpoint calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure

JsonObject = Mapping[str, object]

ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched for longer contexts; `type` is one of `ROPE_TYPES`.

    The last three fields belong to `llama3`: wavelengths longer than `original_max_positions / low_frequency_factor`
    are stretched by `factor`, those shorter than `original_max_positions / high_frequency_factor` are kept, and the
    band between is interpolated.
    """

    type: str = "default"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_max_positions: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A decoder-only transformer with RMS norm, rotary positions, grouped-query attention and a gated SiLU MLP."""

    family: str
    architecture: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
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

    @property
    def attention_scale(self) -> float:
        return float(self.head_dim**-0.5)


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


def read_rope(reader: ConfigReader, max_positions: int) -> tuple[float, RopeScaling]:
    """Base and scaling, from `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before it).

    Raises UNSUPPORTED for scalings other than `ROPE_TYPES`.
    """
    section = reader.section("rope_parameters" if "rope_parameters" in reader else "rope_scaling")
    theta = section.number("rope_theta", reader.number("rope_theta", 10000.0))
    kind = section.text("rope_type", section.text("type", "default"))
    if kind not in ROPE_TYPES:
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"config.json: rotary scaling {kind!r} is not implemented; implemented are {', '.join(ROPE_TYPES)}",
            field="config.json",
        )
    if kind == "default":
        return theta, RopeScaling()
    if kind == "linear":
        return theta, RopeScaling(type=kind, factor=section.number("factor"))
    return theta, RopeScaling(
        type=kind,
        factor=section.number("factor"),
        low_frequency_factor=section.number("low_freq_factor"),
        high_frequency_factor=section.number("high_freq_factor"),
        original_max_positions=section.integer("original_max_position_embeddings", max_positions),
    )
