"""Mistral without a sliding window (7B from version 0.2 on, Nemo, Small)."""

from __future__ import annotations

from typing import Final

from trtllm_engine.network.config import DecoderConfig, JsonObject
from trtllm_engine.network.families.family import LLAMA_NAMES, Family, read_llama_like, refuse_sliding_window


def read_config(raw: JsonObject) -> DecoderConfig:
    refuse_sliding_window(raw, in_use=True)
    return read_llama_like(raw, FAMILY.name, FAMILY.architecture)


FAMILY: Final = Family(name="mistral", architecture="MistralForCausalLM", names=LLAMA_NAMES, read_config=read_config)
