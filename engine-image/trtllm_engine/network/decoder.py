"""The decoder: the one definition that the torch engine runs and that TensorRT engines are built from."""

from __future__ import annotations

from collections.abc import Callable

from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.ops import Ops, Tensor
from trtllm_engine.network.parameters import Role, layer_parameters, weight_name
from trtllm_engine.network.rank import Rank


def decoder(
    ops: Ops[Tensor], config: DecoderConfig, rank: Rank, x: Tensor, last_token_ids: Callable[[], Tensor]
) -> Tensor:
    """A rank's part of one step.

    x: on the first stage of the pipeline the tokens [B, S], on the others the hidden states [B, S, D] that the stage
    before gave. Returns on the last stage the logits of one token of each row, float32 [B, 1, V], on the others hidden
    states. `last_token_ids` [B] says which of the S tokens of a row to compute logits for; only the last stage asks.
    """
    if rank.is_first_stage:
        x = _embed(ops, config, rank, x)
    for layer in rank.layers(config):
        x = _layer(ops, config, rank, layer, x)
    if not rank.is_last_stage:
        return x
    x = _norm(ops, config, ops.pick(x, last_token_ids()), Role.FINAL_NORM)
    head = Role.EMBEDDING if config.tied_embeddings else Role.LM_HEAD
    logits = ops.float32(ops.linear(x, weight_name(head), None))
    if rank.splits_vocabulary(config):
        logits = ops.all_gather(logits)
    return logits if config.logit_cap is None else ops.soft_cap(logits, config.logit_cap)


def _embed(ops: Ops[Tensor], config: DecoderConfig, rank: Rank, ids: Tensor) -> Tensor:
    table = weight_name(Role.EMBEDDING)
    if rank.splits_vocabulary(config):
        x = ops.all_reduce(ops.embed(ids, table, rank.vocabulary(config)))
    else:
        x = ops.embed(ids, table, None)
    return x if config.embedding_scale is None else ops.scale(x, config.embedding_scale)


def _layer(ops: Ops[Tensor], config: DecoderConfig, rank: Rank, layer: int, x: Tensor) -> Tensor:
    block = _mixture if config.is_sparse(layer) else _mlp
    context = _attention(ops, config, rank, layer, _norm(ops, config, x, Role.ATTENTION_NORM, layer))
    if config.post_norms:
        context = _norm(ops, config, context, Role.ATTENTION_POST_NORM, layer)
    x = ops.add(x, context)
    change = block(ops, config, rank, layer, _norm(ops, config, x, Role.MLP_NORM, layer))
    if config.post_norms:
        change = _norm(ops, config, change, Role.MLP_POST_NORM, layer)
    return ops.add(x, change)


def _attention(ops: Ops[Tensor], config: DecoderConfig, rank: Rank, layer: int, x: Tensor) -> Tensor:
    def heads(weight: Role, bias: Role, count: range) -> Tensor:
        return ops.split_heads(_linear(ops, config, layer, x, weight, bias), len(count), config.head_dim)

    query = heads(Role.QUERY, Role.QUERY_BIAS, rank.heads(config))
    key = heads(Role.KEY, Role.KEY_BIAS, rank.kv_heads(config))
    value = heads(Role.VALUE, Role.VALUE_BIAS, rank.kv_heads(config))
    if config.head_norms:
        query, key = _norm(ops, config, query, Role.QUERY_NORM, layer), _norm(ops, config, key, Role.KEY_NORM, layer)
    local = config.is_local(layer)
    context = ops.attend(
        layer,
        ops.rotate(query, local),
        ops.rotate(key, local),
        value,
        config.attention_scale,
        config.window(layer),
        config.score_cap,
    )
    return _reduced_linear(ops, config, rank, layer, ops.merge_heads(context), Role.OUTPUT, Role.OUTPUT_BIAS)


def _mlp(ops: Ops[Tensor], config: DecoderConfig, rank: Rank, layer: int, x: Tensor) -> Tensor:
    gate = _linear(ops, config, layer, x, Role.GATE, Role.GATE_BIAS)
    up = _linear(ops, config, layer, x, Role.UP, Role.UP_BIAS)
    gated = ops.gate(config.activation, gate, up)
    return _reduced_linear(ops, config, rank, layer, gated, Role.DOWN, Role.DOWN_BIAS)


def _mixture(ops: Ops[Tensor], config: DecoderConfig, rank: Rank, layer: int, x: Tensor) -> Tensor:
    """Every rank routes all tokens, and adds what its own experts, or its part of them, make of them."""
    routing = ops.route(
        x,
        weight_name(Role.ROUTER, layer),
        config.experts_per_token,
        config.normalized_routing,
        rank.experts(config),
    )
    gate, up, down = (weight_name(role, layer) for role in (Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_DOWN))
    part = ops.experts(x, routing, config.activation, gate, up, down)
    return ops.all_reduce(part) if rank.tp_size > 1 else part


def _linear(ops: Ops[Tensor], config: DecoderConfig, layer: int, x: Tensor, weight: Role, bias: Role) -> Tensor:
    """The whole of a dimension that no rank splits, or a rank's columns."""
    present = bias in layer_parameters(config, layer)
    return ops.linear(x, weight_name(weight, layer), weight_name(bias, layer) if present else None)


def _reduced_linear(
    ops: Ops[Tensor], config: DecoderConfig, rank: Rank, layer: int, x: Tensor, weight: Role, bias: Role
) -> Tensor:
    """Each rank multiplies what it has of x; the sum is the product. The bias is added to it, once."""
    if rank.tp_size == 1:
        return _linear(ops, config, layer, x, weight, bias)
    product = ops.all_reduce(ops.linear(x, weight_name(weight, layer), None))
    return ops.add_bias(product, weight_name(bias, layer)) if bias in layer_parameters(config, layer) else product


def _norm(ops: Ops[Tensor], config: DecoderConfig, x: Tensor, weight: Role, layer: int = 0) -> Tensor:
    return ops.rms_norm(x, weight_name(weight, layer), config.norm_eps, config.norm_offset)
