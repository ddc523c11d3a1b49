"""Qwen3-MoE: Qwen3 with a mixture of experts in place of most MLPs."""

from __future__ import annotations

import dataclasses
from typing import Final

from trtllm_engine.network.config import ConfigReader, DecoderConfig, JsonObject
from trtllm_engine.network.families.family import HEAD_NORM_NAMES, LLAMA_NAMES, Family, read_llama_like, windowed
from trtllm_engine.network.parameters import Role


def read_config(raw: JsonObject) -> DecoderConfig:
    reader = ConfigReader(raw)
    bias = reader.flag("attention_bias", False)
    config = read_llama_like(raw, FAMILY.name, FAMILY.architecture, query_bias=bias, output_bias=bias)
    step, dense = reader.integer("decoder_sparse_step", 1), reader.integers("mlp_only_layers")
    config = dataclasses.replace(
        config,
        head_norms=True,
        experts=reader.integer("num_experts", reader.integer("num_local_experts", 128)),
        experts_per_token=reader.integer("num_experts_per_tok", 8),
        expert_intermediate_size=reader.integer("moe_intermediate_size", 768),
        normalized_routing=reader.flag("norm_topk_prob", False),
        sparse_layers=tuple(n for n in range(config.num_layers) if n not in dense and (n + 1) % step == 0),
    )
    if not reader.flag("use_sliding_window", False):
        return config
    return windowed(config, raw.get("sliding_window", 4096), range(config.num_layers))


NAMES: Final = {
    **LLAMA_NAMES,
    **HEAD_NORM_NAMES,
    Role.ROUTER: "model.layers.{layer}.mlp.gate.weight",
    Role.EXPERT_GATE: "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
    Role.EXPERT_UP: "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
    Role.EXPERT_DOWN: "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight",
}

FAMILY: Final = Family(name="qwen3_moe", architecture="Qwen3MoeForCausalLM", names=NAMES, read_config=read_config)
