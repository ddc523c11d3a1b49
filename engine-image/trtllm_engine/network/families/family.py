"""What a family is: the reading of its config and the names of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import ConfigReader, DecoderConfig, JsonObject, read_rope
from trtllm_engine.network.parameters import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model family; `names` maps every role to a checkpoint's tensor name, with `{layer}` where layers repeat."""

    name: str
    architecture: str
    names: Mapping[Role, str]
    read_config: Callable[[JsonObject], DecoderConfig]

    def tensor(self, role: Role, layer: int = 0) -> str:
        return self.names[role].format(layer=layer)


LLAMA_NAMES: Final[Mapping[Role, str]] = {
    Role.EMBEDDING: "model.embed_tokens.weight",
    Role.FINAL_NORM: "model.norm.weight",
    Role.LM_HEAD: "lm_head.weight",
    Role.ATTENTION_NORM: "model.layers.{layer}.input_layernorm.weight",
    Role.QUERY: "model.layers.{layer}.self_attn.q_proj.weight",
    Role.KEY: "model.layers.{layer}.self_attn.k_proj.weight",
    Role.VALUE: "model.layers.{layer}.self_attn.v_proj.weight",
    Role.OUTPUT: "model.layers.{layer}.self_attn.o_proj.weight",
    Role.QUERY_BIAS: "model.layers.{layer}.self_attn.q_proj.bias",
    Role.KEY_BIAS: "model.layers.{layer}.self_attn.k_proj.bias",
    Role.VALUE_BIAS: "model.layers.{layer}.self_attn.v_proj.bias",
    Role.OUTPUT_BIAS: "model.layers.{layer}.self_attn.o_proj.bias",
    Role.MLP_NORM: "model.layers.{layer}.post_attention_layernorm.weight",
    Role.GATE: "model.layers.{layer}.mlp.gate_proj.weight",
    Role.UP: "model.layers.{layer}.mlp.up_proj.weight",
    Role.DOWN: "model.layers.{layer}.mlp.down_proj.weight",
    Role.GATE_BIAS: "model.layers.{layer}.mlp.gate_proj.bias",
    Role.UP_BIAS: "model.layers.{layer}.mlp.up_proj.bias",
    Role.DOWN_BIAS: "model.layers.{layer}.mlp.down_proj.bias",
}
"""Tensor names of Llama checkpoints, which most later families kept."""


def read_llama_like(
    raw: JsonObject,
    family: str,
    architecture: str,
    *,
    query_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    tied_default: bool = False,
) -> DecoderConfig:
    """The keys that Llama and its descendants share; defaults are those of the transformers config classes.

    Raises CORRUPT_INPUT on sizes that cannot be, UNSUPPORTED on an activation other than SiLU.
    """
    reader = ConfigReader(raw)
    hidden, heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    kv_heads = reader.integer("num_key_value_heads", heads)
    if "head_dim" not in reader and hidden % heads:
        raise _corrupt(f"hidden_size {hidden} does not divide by num_attention_heads {heads}, and head_dim is missing")
    head_dim = reader.integer("head_dim", hidden // heads)
    if heads % kv_heads:
        raise _corrupt(f"num_attention_heads {heads} does not divide by num_key_value_heads {kv_heads}")
    if head_dim % 2:
        raise _corrupt(f"head_dim {head_dim} is odd, so rotary positions cannot split it")
    if (activation := reader.text("hidden_act", "silu")) != "silu":
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"config.json: hidden_act {activation!r} is not implemented; implemented is silu",
            field="config.json",
        )
    max_positions = reader.integer("max_position_embeddings", 2048)
    theta, scaling = read_rope(reader, max_positions)
    return DecoderConfig(
        family=family,
        architecture=architecture,
        hidden_size=hidden,
        num_layers=reader.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=reader.integer("intermediate_size"),
        vocab_size=reader.integer("vocab_size"),
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_positions=max_positions,
        tied_embeddings=reader.flag("tie_word_embeddings", tied_default),
        query_bias=query_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
        eos_token_ids=reader.integers("eos_token_id"),
    )


def refuse_sliding_window(config: DecoderConfig, window: object) -> None:
    """Attention here always sees the whole past: a window (None: there is none) must not be shorter than that."""
    if isinstance(window, int) and window < config.max_positions:
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"config.json: sliding_window {window} is not implemented; only full attention is",
            field="config.json",
        )


def _corrupt(message: str) -> Failure:
    return Failure(ExitCode.CORRUPT_INPUT, f"config.json: {message}", field="config.json")
