"""Qwen2 and Qwen2.5: Llama with a bias on query, key and value."""

from __future__ import annotations

from typing import Final

from trtllm_engine.network.config import ConfigReader, DecoderConfig, JsonObject
from trtllm_engine.network.families.family import LLAMA_NAMES, Family, read_llama_like, refuse_sliding_window


def read_config(raw: JsonObject) -> DecoderConfig:
    config = read_llama_like(raw, FAMILY.name, FAMILY.architecture, query_bias=True)
    if ConfigReader(raw).flag("use_sliding_window", False):
        refuse_sliding_window(config, raw.get("sliding_window"))
    return config


FAMILY: Final = Family(name="qwen2", architecture="Qwen2ForCausalLM", names=LLAMA_NAMES, read_config=read_config)
