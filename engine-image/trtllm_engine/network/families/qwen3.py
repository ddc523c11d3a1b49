"""Qwen3: Llama with normalised queries and keys."""

from __future__ import annotations

import dataclasses
from typing import Final

from trtllm_engine.network.config import ConfigReader, DecoderConfig, JsonObject
from trtllm_engine.network.families.family import HEAD_NORM_NAMES, LLAMA_NAMES, Family, read_llama_like
from trtllm_engine.network.families.qwen2 import upper_layers_windowed


def read_config(raw: JsonObject) -> DecoderConfig:
    bias = ConfigReader(raw).flag("attention_bias", False)
    config = read_llama_like(
        raw, FAMILY.name, FAMILY.architecture, query_bias=bias, output_bias=bias, head_dim_default=128
    )
    return upper_layers_windowed(raw, dataclasses.replace(config, head_norms=True))


NAMES: Final = {**LLAMA_NAMES, **HEAD_NORM_NAMES}

FAMILY: Final = Family(name="qwen3", architecture="Qwen3ForCausalLM", names=NAMES, read_config=read_config)
