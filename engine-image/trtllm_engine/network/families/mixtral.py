"""Mixtral: Mistral with a mixture of experts in place of every MLP."""

from __future__ import annotations

import dataclasses
from typing import Final

from trtllm_engine.network.config import ConfigReader, DecoderConfig, JsonObject
from trtllm_engine.network.families.family import LLAMA_NAMES, Family, read_llama_like, windowed
from trtllm_engine.network.parameters import Role


def read_config(raw: JsonObject) -> DecoderConfig:
    reader = ConfigReader(raw)
    config = read_llama_like(raw, FAMILY.name, FAMILY.architecture, theta_default=1e6)
    config = dataclasses.replace(
        config,
        experts=reader.integer("num_local_experts", 8),
        experts_per_token=reader.integer("num_experts_per_tok", 2),
        expert_intermediate_size=config.intermediate_size,
        sparse_layers=tuple(range(config.num_layers)),
    )
    return windowed(config, raw.get("sliding_window"), range(config.num_layers))


NAMES: Final = {
    **LLAMA_NAMES,
    Role.ROUTER: "model.layers.{layer}.block_sparse_moe.gate.weight",
    Role.EXPERT_GATE: "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight",
    Role.EXPERT_UP: "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight",
    Role.EXPERT_DOWN: "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight",
}

FAMILY: Final = Family(name="mixtral", architecture="MixtralForCausalLM", names=NAMES, read_config=read_config)
