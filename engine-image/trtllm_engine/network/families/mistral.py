"""Mistral without a sliding window (7B from version 0.2 on, Nemo)."""

from __future__ import annotations

from typing import Final

from trtllm_engine.network.config import DecoderConfig, JsonObject
from trtllm_engine.network.families.family import LLAMA_NAMES, Family, read_llama_like, refuse_sliding_window


def read_config(raw: JsonObject) -> DecoderConfig:
    config = read_llama_like(raw, FAMILY.name, FAMILY.architecture)
    refuse_sliding_window(config, raw.get("sliding_window", DEFAULT_WINDOW))
    return config


DEFAULT_WINDOW: Final = 4096
"""What transformers' MistralConfig takes where config.json says nothing; null says that there is none."""


FAMILY: Final = Family(name="mistral", architecture="MistralForCausalLM", names=LLAMA_NAMES, read_config=read_config)
