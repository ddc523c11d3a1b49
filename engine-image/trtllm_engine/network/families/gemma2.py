"""Gemma 2: norms before and after attention and MLP, capped scores and logits, a window in every other layer."""

from __future__ import annotations

import dataclasses
from typing import Final

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import ConfigReader, DecoderConfig, JsonObject
from trtllm_engine.network.families.family import LLAMA_NAMES, Family, read_llama_like, sliding_layers, windowed
from trtllm_engine.network.parameters import Role


def read_config(raw: JsonObject) -> DecoderConfig:
    config = read_gemma(raw, FAMILY.name, FAMILY.architecture)
    config = dataclasses.replace(
        config, score_cap=cap(raw, "attn_logit_softcapping", 50.0), logit_cap=cap(raw, "final_logit_softcapping", 30.0)
    )
    layers = sliding_layers(ConfigReader(raw), config, lambda layer: layer % 2 == 0)
    return windowed(config, raw.get("sliding_window", 4096), layers)


def read_gemma(raw: JsonObject, family: str, architecture: str) -> DecoderConfig:
    """What Gemma 2 and 3 have in common."""
    reader = ConfigReader(raw)
    if reader.flag("use_bidirectional_attention", False):
        raise Failure(
            ExitCode.UNSUPPORTED,
            "config.json: use_bidirectional_attention is not implemented; only causal attention is",
            field="config.json",
        )
    bias = reader.flag("attention_bias", False)
    config = read_llama_like(
        raw,
        family,
        architecture,
        query_bias=bias,
        output_bias=bias,
        tied_default=True,
        head_dim_default=256,
        activation=reader.text("hidden_activation", "gelu_pytorch_tanh"),
    )
    return dataclasses.replace(
        config,
        post_norms=True,
        norm_offset=1.0,
        embedding_scale=config.hidden_size**0.5,
        query_scale=reader.number("query_pre_attn_scalar", 256) ** -0.5,
    )


def cap(raw: JsonObject, key: str, default: float | None) -> float | None:
    """A cap; null says that there is none."""
    return ConfigReader(raw).number(key, default) if raw.get(key, default) is not None else None


NAMES: Final = {
    **LLAMA_NAMES,
    Role.ATTENTION_POST_NORM: "model.layers.{layer}.post_attention_layernorm.weight",
    Role.MLP_NORM: "model.layers.{layer}.pre_feedforward_layernorm.weight",
    Role.MLP_POST_NORM: "model.layers.{layer}.post_feedforward_layernorm.weight",
}

FAMILY: Final = Family(name="gemma2", architecture="Gemma2ForCausalLM", names=NAMES, read_config=read_config)
