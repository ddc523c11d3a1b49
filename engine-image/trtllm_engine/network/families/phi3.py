"""Phi-3 and Phi-4-mini: Llama with query, key and value in one tensor, and gate and up in another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import ConfigReader, DecoderConfig, JsonObject
from trtllm_engine.network.families.family import LLAMA_NAMES, Family, read_llama_like, windowed
from trtllm_engine.network.parameters import Role


def read_config(raw: JsonObject) -> DecoderConfig:
    reader = ConfigReader(raw)
    key = "rope_parameters" if "rope_parameters" in reader else "rope_scaling"
    rope = _longrope(raw.get(key))
    config = read_llama_like({**raw, key: rope}, FAMILY.name, FAMILY.architecture)
    partial = ConfigReader(rope or {}).number("partial_rotary_factor", reader.number("partial_rotary_factor", 1.0))
    config = dataclasses.replace(config, rotary_dim=int(config.head_dim * partial))
    for factors in (config.rope_scaling.short_factors, config.rope_scaling.long_factors):
        if factors and len(factors) != config.rotated // 2:
            raise Failure(
                ExitCode.CORRUPT_INPUT,
                f"config.json: {key} has {len(factors)} factors for {config.rotated // 2} frequencies",
                field="config.json",
            )
    return windowed(config, raw.get("sliding_window"), range(config.num_layers))


def _longrope(rope: object) -> Mapping[str, object] | None:
    """`su` and, in this family, `yarn` are older names of longrope."""
    if not isinstance(rope, dict):
        return None
    kind = rope.get("rope_type", rope.get("type"))
    return {**rope, "rope_type": "longrope"} if kind in ("su", "yarn") else rope


NAMES: Final = {
    **LLAMA_NAMES,
    Role.QUERY: "model.layers.{layer}.self_attn.qkv_proj.weight",
    Role.KEY: "model.layers.{layer}.self_attn.qkv_proj.weight",
    Role.VALUE: "model.layers.{layer}.self_attn.qkv_proj.weight",
    Role.GATE: "model.layers.{layer}.mlp.gate_up_proj.weight",
    Role.UP: "model.layers.{layer}.mlp.gate_up_proj.weight",
}

FAMILY: Final = Family(name="phi3", architecture="Phi3ForCausalLM", names=NAMES, read_config=read_config)
