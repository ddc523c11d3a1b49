"""The decoder: the one definition that the torch engine runs and that TensorRT engines are built from."""

from __future__ import annotations

from collections.abc import Callable

from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.families import family_of
from trtllm_engine.network.ops import Ops, Tensor
from trtllm_engine.network.parameters import Role, layer_parameters


def decoder(ops: Ops[Tensor], config: DecoderConfig, input_ids: Tensor, last_token_ids: Tensor) -> Tensor:
    """Logits of one token of each row, float32 [B, 1, V].

    input_ids [B, S] are the tokens, last_token_ids [B] says which of the S tokens of a row to compute logits for.
    """
    family = family_of(config.architecture)
    x = ops.embed(input_ids, family.tensor(Role.EMBEDDING))
    for layer in range(config.num_layers):
        x = _layer(ops, config, layer, x)
    x = ops.pick(x, last_token_ids)
    x = ops.rms_norm(x, family.tensor(Role.FINAL_NORM), config.norm_eps)
    head = Role.EMBEDDING if config.tied_embeddings else Role.LM_HEAD
    return ops.float32(ops.linear(x, family.tensor(head), None))


def _layer(ops: Ops[Tensor], config: DecoderConfig, layer: int, x: Tensor) -> Tensor:
    family, present = family_of(config.architecture), layer_parameters(config)

    def linear(x: Tensor, weight: Role, bias: Role) -> Tensor:
        return ops.linear(x, family.tensor(weight, layer), family.tensor(bias, layer) if bias in present else None)

    x = ops.add(
        x,
        _attention(
            ops, config, layer, linear, ops.rms_norm(x, family.tensor(Role.ATTENTION_NORM, layer), config.norm_eps)
        ),
    )
    return ops.add(x, _mlp(ops, linear, ops.rms_norm(x, family.tensor(Role.MLP_NORM, layer), config.norm_eps)))


def _attention(
    ops: Ops[Tensor], config: DecoderConfig, layer: int, linear: Callable[[Tensor, Role, Role], Tensor], x: Tensor
) -> Tensor:
    query = ops.split_heads(linear(x, Role.QUERY, Role.QUERY_BIAS), config.num_heads, config.head_dim)
    key = ops.split_heads(linear(x, Role.KEY, Role.KEY_BIAS), config.num_kv_heads, config.head_dim)
    value = ops.split_heads(linear(x, Role.VALUE, Role.VALUE_BIAS), config.num_kv_heads, config.head_dim)
    context = ops.attend(layer, ops.rotate(query), ops.rotate(key), value, config.attention_scale)
    return linear(ops.merge_heads(context), Role.OUTPUT, Role.OUTPUT_BIAS)


def _mlp(ops: Ops[Tensor], linear: Callable[[Tensor, Role, Role], Tensor], x: Tensor) -> Tensor:
    gated = ops.gated_silu(linear(x, Role.GATE, Role.GATE_BIAS), linear(x, Role.UP, Role.UP_BIAS))
    return linear(gated, Role.DOWN, Role.DOWN_BIAS)
