"""Which tensors a decoder has, their shapes, and which part of each a rank holds."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.rank import WHOLE, Rank

Shape = tuple[int, ...]


class Role(enum.Enum):
    """What a tensor is for; its value is our name for it. Matrices are stored [out, in], experts' [E, out, in]."""

    EMBEDDING = "embedding"
    FINAL_NORM = "final_norm"
    LM_HEAD = "lm_head"
    ATTENTION_NORM = "attention_norm"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    OUTPUT = "output"
    QUERY_BIAS = "query_bias"
    KEY_BIAS = "key_bias"
    VALUE_BIAS = "value_bias"
    OUTPUT_BIAS = "output_bias"
    QUERY_NORM = "query_norm"
    KEY_NORM = "key_norm"
    ATTENTION_POST_NORM = "attention_post_norm"
    MLP_NORM = "mlp_norm"
    GATE = "gate"
    UP = "up"
    DOWN = "down"
    GATE_BIAS = "gate_bias"
    UP_BIAS = "up_bias"
    DOWN_BIAS = "down_bias"
    ROUTER = "router"
    EXPERT_GATE = "expert_gate"
    EXPERT_UP = "expert_up"
    EXPERT_DOWN = "expert_down"
    MLP_POST_NORM = "mlp_post_norm"


OUTSIDE_LAYERS = frozenset({Role.EMBEDDING, Role.FINAL_NORM, Role.LM_HEAD})
IN_EXPERTS = frozenset({Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_DOWN})
MATRICES = IN_EXPERTS | {Role.QUERY, Role.KEY, Role.VALUE, Role.OUTPUT, Role.GATE, Role.UP, Role.DOWN}
"""What may be quantised. Embedding, head and router decide too much for what they would save."""


def weight_name(role: Role, layer: int = 0) -> str:
    """How the decoder, and an engine of the `torch` toolchain, call a tensor."""
    return role.value if role in OUTSIDE_LAYERS else f"layers.{layer}.{role.value}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One tensor of the decoder, or a rank's part of it."""

    role: Role
    layer: int
    """0 for those outside of the layers."""
    whole: Shape
    part: tuple[range, ...]
    """What the rank holds of each dimension."""

    @property
    def name(self) -> str:
        return weight_name(self.role, self.layer)

    @property
    def shape(self) -> Shape:
        """Of the part."""
        return tuple(len(positions) for positions in self.part)


def model_parameters(config: DecoderConfig) -> dict[Role, Shape]:
    """The tensors outside the layers. Tied embeddings have no tensor for the head."""
    table = (config.vocab_size, config.hidden_size)
    head = {} if config.tied_embeddings else {Role.LM_HEAD: table}
    return {Role.EMBEDDING: table, Role.FINAL_NORM: (config.hidden_size,), **head}


def layer_parameters(config: DecoderConfig, layer: int) -> dict[Role, Shape]:
    """The tensors of one layer."""
    hidden = config.hidden_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[Role, Shape] = {
        Role.ATTENTION_NORM: (hidden,),
        Role.QUERY: (queries, hidden),
        Role.KEY: (keys, hidden),
        Role.VALUE: (keys, hidden),
        Role.OUTPUT: (hidden, queries),
        Role.MLP_NORM: (hidden,),
    }
    if config.query_bias:
        shapes |= {Role.QUERY_BIAS: (queries,), Role.KEY_BIAS: (keys,), Role.VALUE_BIAS: (keys,)}
    if config.output_bias:
        shapes |= {Role.OUTPUT_BIAS: (hidden,)}
    if config.head_norms:
        shapes |= {Role.QUERY_NORM: (config.head_dim,), Role.KEY_NORM: (config.head_dim,)}
    if config.post_norms:
        shapes |= {Role.ATTENTION_POST_NORM: (hidden,), Role.MLP_POST_NORM: (hidden,)}
    return shapes | (_mixture(config) if config.is_sparse(layer) else _dense(config))


def _dense(config: DecoderConfig) -> dict[Role, Shape]:
    hidden, mlp = config.hidden_size, config.intermediate_size
    shapes: dict[Role, Shape] = {Role.GATE: (mlp, hidden), Role.UP: (mlp, hidden), Role.DOWN: (hidden, mlp)}
    if config.mlp_bias:
        shapes |= {Role.GATE_BIAS: (mlp,), Role.UP_BIAS: (mlp,), Role.DOWN_BIAS: (hidden,)}
    return shapes


def _mixture(config: DecoderConfig) -> dict[Role, Shape]:
    hidden, experts, mlp = config.hidden_size, config.experts, config.expert_intermediate_size
    return {
        Role.ROUTER: (experts, hidden),
        Role.EXPERT_GATE: (experts, mlp, hidden),
        Role.EXPERT_UP: (experts, mlp, hidden),
        Role.EXPERT_DOWN: (experts, hidden, mlp),
    }


def parameters(config: DecoderConfig) -> Iterator[tuple[Role, int, Shape]]:
    """Every tensor once, as (role, layer, shape); the layer is 0 for those outside the layers."""
    yield from ((role, 0, shape) for role, shape in model_parameters(config).items())
    for layer in range(config.num_layers):
        yield from ((role, layer, shape) for role, shape in layer_parameters(config, layer).items())


def rank_parameters(config: DecoderConfig, rank: Rank = WHOLE) -> Iterator[Parameter]:
    """The tensors that a rank holds, and which part of each."""
    for role, layer, shape in parameters(config):
        if _holds(config, rank, role, layer):
            splits = _splits(config, rank, role)
            part = tuple(splits.get(axis, range(size)) for axis, size in enumerate(shape))
            yield Parameter(role, layer, shape, part)


def _holds(config: DecoderConfig, rank: Rank, role: Role, layer: int) -> bool:
    """A tied embedding is needed at both ends of the pipeline."""
    if role is Role.EMBEDDING:
        return rank.is_first_stage or (rank.is_last_stage and config.tied_embeddings)
    if role in OUTSIDE_LAYERS:
        return rank.is_last_stage
    return layer in rank.layers(config)


def _splits(config: DecoderConfig, rank: Rank, role: Role) -> dict[int, range]:
    """By dimension, what a rank holds of a tensor; dimensions that are not named it holds whole."""
    match role:
        case Role.EMBEDDING | Role.LM_HEAD:
            return {0: rank.vocabulary(config)}
        case Role.QUERY | Role.QUERY_BIAS:
            return {0: _wide(rank.heads(config), config.head_dim)}
        case Role.KEY | Role.KEY_BIAS | Role.VALUE | Role.VALUE_BIAS:
            return {0: _wide(rank.kv_heads(config), config.head_dim)}
        case Role.OUTPUT:
            return {1: _wide(rank.heads(config), config.head_dim)}
        case Role.GATE | Role.UP | Role.GATE_BIAS | Role.UP_BIAS:
            return {0: rank.mlp(config)}
        case Role.DOWN:
            return {1: rank.mlp(config)}
        case Role.EXPERT_GATE | Role.EXPERT_UP:
            return {0: rank.experts(config), 1: rank.expert_mlp(config)}
        case Role.EXPERT_DOWN:
            return {0: rank.experts(config), 2: rank.expert_mlp(config)}
        case _:
            return {}


def _wide(heads: range, head_dim: int) -> range:
    return range(heads.start * head_dim, heads.stop * head_dim)
