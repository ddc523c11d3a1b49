"""Qwen2 and Qwen2.5: Llama with a bias on query, key and value."""

from __future__ import annotations

from typing import Final

from trtllm_engine.network.config import ConfigReader, DecoderConfig, JsonObject
from trtllm_engine.network.families.family import LLAMA_NAMES, Family, read_llama_like, sliding_layers, windowed


def read_config(raw: JsonObject) -> DecoderConfig:
    config = read_llama_like(raw, FAMILY.name, FAMILY.architecture, query_bias=True)
    return upper_layers_windowed(raw, config)


def upper_layers_windowed(raw: JsonObject, config: DecoderConfig) -> DecoderConfig:
    """`sliding_window` counts if `use_sliding_window` says so, from layer `max_window_layers` on."""
    reader = ConfigReader(raw)
    if not reader.flag("use_sliding_window", False):
        return config
    first = raw.get("max_window_layers", 28)
    layers = sliding_layers(reader, config, lambda layer: isinstance(first, int) and layer >= first)
    return windowed(config, raw.get("sliding_window", 4096), layers)


FAMILY: Final = Family(name="qwen2", architecture="Qwen2ForCausalLM", names=LLAMA_NAMES, read_config=read_config)
