"""What a family is: the reading of its config and the names of its tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import Activation, ConfigReader, DecoderConfig, JsonObject, read_rope
from trtllm_engine.network.parameters import OUTSIDE_LAYERS, Role, Shape, layer_parameters, model_parameters


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor of the decoder, or one expert's part of it, is in a checkpoint."""

    tensor: str
    shape: Shape
    """Of that tensor, which may hold more."""
    first_row: int = 0
    """Where ours begins in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model family.

    `names` maps every role to a checkpoint's tensor name, with `{layer}` where layers repeat and `{expert}` where each
    expert has a tensor of its own. Roles of one name share a tensor, one below the other in the order of `names`.
    """

    name: str
    architecture: str
    names: Mapping[Role, str]
    read_config: Callable[[JsonObject], DecoderConfig]

    def places(self, config: DecoderConfig, role: Role, layer: int = 0) -> list[Place]:
        """Where a tensor is: in one place, or in one for each expert."""
        pattern = self.names[role]
        shapes = model_parameters(config) if role in OUTSIDE_LAYERS else layer_parameters(config, layer)
        together = [other for other, name in self.names.items() if name == pattern and other in shapes]
        rows, width = [shapes[other][0] for other in together], shapes[role][1:]
        if "{expert}" not in pattern:
            first_row = sum(rows[: together.index(role)])
            return [Place(pattern.format(layer=layer), (sum(rows), *width), first_row)]
        return [Place(pattern.format(layer=layer, expert=expert), width) for expert in range(config.experts)]


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

HEAD_NORM_NAMES: Final[Mapping[Role, str]] = {
    Role.QUERY_NORM: "model.layers.{layer}.self_attn.q_norm.weight",
    Role.KEY_NORM: "model.layers.{layer}.self_attn.k_norm.weight",
}
"""Where queries and keys are normalised."""

SLIDING, FULL = "sliding_attention", "full_attention"
"""What `layer_types` calls them."""


def read_llama_like(
    raw: JsonObject,
    family: str,
    architecture: str,
    *,
    query_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    tied_default: bool = False,
    head_dim_default: int | None = None,
    theta_default: float = 10000.0,
    activation: str | None = None,
) -> DecoderConfig:
    """The keys that Llama and its descendants share; defaults are those of the transformers config classes.

    Raises CORRUPT_INPUT on sizes that cannot be, UNSUPPORTED on an activation that is not implemented.
    """
    reader = ConfigReader(raw)
    hidden, heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    kv_heads = reader.integer("num_key_value_heads", heads)
    if "head_dim" not in reader and head_dim_default is None and hidden % heads:
        raise _corrupt(f"hidden_size {hidden} does not divide by num_attention_heads {heads}, and head_dim is missing")
    head_dim = reader.integer("head_dim", head_dim_default or hidden // heads)
    if heads % kv_heads:
        raise _corrupt(f"num_attention_heads {heads} does not divide by num_key_value_heads {kv_heads}")
    if head_dim % 2:
        raise _corrupt(f"head_dim {head_dim} is odd, so rotary positions cannot split it")
    max_positions = reader.integer("max_position_embeddings", 2048)
    theta, scaling = read_rope(reader, max_positions, theta_default)
    if scaling.type == "yarn":
        # Configs that ask for YaRN name the length before it.
        max_positions = max(max_positions, int(scaling.factor * scaling.original_max_positions))
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
        activation=_activation(activation or reader.text("hidden_act", "silu")),
    )


def windowed(config: DecoderConfig, window: object, layers: Iterable[int]) -> DecoderConfig:
    """The config with a sliding window (None: there is none) in these layers; one that hides nothing is left out."""
    if window is None:
        return config
    if type(window) is not int or window < 1:
        raise _corrupt(f"sliding_window must be a positive integer or null; got {window!r}")
    chosen = tuple(layers)
    if window >= config.max_positions and config.local_rope_theta is None:
        return config
    return dataclasses.replace(config, sliding_window=window if chosen else None, windowed_layers=chosen)


def sliding_layers(reader: ConfigReader, config: DecoderConfig, default: Callable[[int], bool]) -> list[int]:
    """The layers that `layer_types` calls sliding; where it is missing, those for which `default` holds."""
    if "layer_types" not in reader:
        return [layer for layer in range(config.num_layers) if default(layer)]
    kinds = reader.texts("layer_types")
    if len(kinds) != config.num_layers:
        raise _corrupt(f"layer_types has {len(kinds)} entries for {config.num_layers} layers")
    if unknown := sorted(set(kinds) - {SLIDING, FULL}):
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"config.json: layer_types {unknown[0]!r} is not implemented; implemented are {SLIDING}, {FULL}",
            field="config.json",
        )
    return [layer for layer, kind in enumerate(kinds) if kind == SLIDING]


def _activation(name: str) -> Activation:
    try:
        return Activation(name)
    except ValueError:
        known = ", ".join(activation.value for activation in Activation)
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"config.json: activation {name!r} is not implemented; implemented are {known}",
            field="config.json",
        ) from None


def _corrupt(message: str) -> Failure:
    return Failure(ExitCode.CORRUPT_INPUT, f"config.json: {message}", field="config.json")
