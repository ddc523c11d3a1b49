"""Mistral: Llama with a sliding window in every layer (7B version 0.1), or without (later ones, Nemo)."""

from __future__ import annotations

from typing import Final

from trtllm_engine.network.config import DecoderConfig, JsonObject
from trtllm_engine.network.families.family import LLAMA_NAMES, Family, read_llama_like, windowed


def read_config(raw: JsonObject) -> DecoderConfig:
    config = read_llama_like(raw, FAMILY.name, FAMILY.architecture)
    return windowed(config, raw.get("sliding_window", DEFAULT_WINDOW), range(config.num_layers))


DEFAULT_WINDOW: Final = 4096
"""What transformers' MistralConfig takes where config.json says nothing; null says that there is none."""


FAMILY: Final = Family(name="mistral", architecture="MistralForCausalLM", names=LLAMA_NAMES, read_config=read_config)
