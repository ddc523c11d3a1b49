"""Which tensors a decoder has, and their shapes."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from trtllm_engine.network.config import DecoderConfig

Shape = tuple[int, ...]


class Role(enum.Enum):
    """What a tensor is for; matrices are stored [out, in]."""

    EMBEDDING = enum.auto()
    FINAL_NORM = enum.auto()
    LM_HEAD = enum.auto()
    ATTENTION_NORM = enum.auto()
    QUERY = enum.auto()
    KEY = enum.auto()
    VALUE = enum.auto()
    OUTPUT = enum.auto()
    QUERY_BIAS = enum.auto()
    KEY_BIAS = enum.auto()
    VALUE_BIAS = enum.auto()
    OUTPUT_BIAS = enum.auto()
    MLP_NORM = enum.auto()
    GATE = enum.auto()
    UP = enum.auto()
    DOWN = enum.auto()
    GATE_BIAS = enum.auto()
    UP_BIAS = enum.auto()
    DOWN_BIAS = enum.auto()


def model_parameters(config: DecoderConfig) -> dict[Role, Shape]:
    """The tensors outside the layers. Tied embeddings have no tensor for the head."""
    table = (config.vocab_size, config.hidden_size)
    head = {} if config.tied_embeddings else {Role.LM_HEAD: table}
    return {Role.EMBEDDING: table, Role.FINAL_NORM: (config.hidden_size,), **head}


def layer_parameters(config: DecoderConfig) -> dict[Role, Shape]:
    """The tensors of each layer."""
    hidden, mlp = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes = {
        Role.ATTENTION_NORM: (hidden,),
        Role.QUERY: (queries, hidden),
        Role.KEY: (keys, hidden),
        Role.VALUE: (keys, hidden),
        Role.OUTPUT: (hidden, queries),
        Role.MLP_NORM: (hidden,),
        Role.GATE: (mlp, hidden),
        Role.UP: (mlp, hidden),
        Role.DOWN: (hidden, mlp),
    }
    if config.query_bias:
        shapes |= {Role.QUERY_BIAS: (queries,), Role.KEY_BIAS: (keys,), Role.VALUE_BIAS: (keys,)}
    if config.output_bias:
        shapes |= {Role.OUTPUT_BIAS: (hidden,)}
    if config.mlp_bias:
        shapes |= {Role.GATE_BIAS: (mlp,), Role.UP_BIAS: (mlp,), Role.DOWN_BIAS: (hidden,)}
    return shapes


def parameters(config: DecoderConfig) -> Iterator[tuple[Role, int, Shape]]:
    """Every tensor once, as (role, layer, shape); the layer is 0 for those outside the layers."""
    yield from ((role, 0, shape) for role, shape in model_parameters(config).items())
    for layer in range(config.num_layers):
        yield from ((role, layer, shape) for role, shape in layer_parameters(config).items())
