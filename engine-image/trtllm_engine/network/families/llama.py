"""Llama 1 to 3 and what kept its shape (SmolLM2, TinyLlama, Yi, ...)."""

from __future__ import annotations

from typing import Final

from trtllm_engine.network.config import ConfigReader, DecoderConfig, JsonObject
from trtllm_engine.network.families.family import LLAMA_NAMES, Family, read_llama_like


def read_config(raw: JsonObject) -> DecoderConfig:
    reader = ConfigReader(raw)
    attention_bias = reader.flag("attention_bias", False)
    return read_llama_like(
        raw,
        FAMILY.name,
        FAMILY.architecture,
        query_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=reader.flag("mlp_bias", False),
    )


FAMILY: Final = Family(name="llama", architecture="LlamaForCausalLM", names=LLAMA_NAMES, read_config=read_config)
