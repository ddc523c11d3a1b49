"""Whether a rank fits into the memory of its GPU, with the arithmetic shown.

Weights and cache follow from the model's shape. Activations and the runtime's own share are estimates, each with its
source; **none of them was verified on a GPU**.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trtllm_engine.contract import Mapping, ModelFacts

GIB: Final = 2**30
DTYPE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}
BLOCK_SCALE: Final = 32 / 128**2
"""Bits per weight of a float32 scale for each block of 128 x 128."""

RUNTIME_BYTES: Final = GIB
"""CUDA context, kernels, and the workspaces of cuBLAS and the decoder. Estimate, not verified on a GPU: TensorRT-LLM's
"Memory Usage" page (reference/memory) counts them beside weights, activations and cache, and gives no number."""
COMMUNICATION_BYTES: Final = GIB // 2
"""NCCL's channels and the buffers of all-reduce, of a rank that has peers. Estimate, not verified on a GPU."""
LIVE_COPIES: Final = 2
"""How many times the widest step of a layer is in memory at once: input and output of the operation that runs.
Derived from the decoder's definition (`network/decoder.py`); what TensorRT plans is not verified on a GPU."""
STEP_TOKENS: Final = 8192
"""Tokens that are computed in one step at most, unless asked otherwise: LlmArgs' default of `max_num_tokens`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """One use of a GPU's memory."""

    what: str
    bytes: int
    arithmetic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The GPU that a rank gets."""

    product: str
    memory_bytes: int
    headroom: float
    """Share of its memory that stays free."""

    @property
    def available_bytes(self) -> int:
        return int(self.memory_bytes * (1 - self.headroom))

    def __str__(self) -> str:
        return (
            f"{self.product} has {_gib(self.available_bytes)} of {_gib(self.memory_bytes)} "
            f"({self.headroom:.0%} stay free)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """What the rank that needs most needs."""

    rank: int
    rows: tuple[MemoryRow, ...]
    gpu: Gpu | None = None
    """None: no node is known."""

    @property
    def needed_bytes(self) -> int:
        return sum(row.bytes for row in self.rows)

    @property
    def fits(self) -> bool | None:
        """None: not known."""
        return None if self.gpu is None else self.needed_bytes <= self.gpu.available_bytes

    def __str__(self) -> str:
        parts = ", ".join(f"{row.what} {_gib(row.bytes)}" for row in self.rows)
        return f"rank {self.rank} needs {_gib(self.needed_bytes)} ({parts})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of the ranks; everything that memory depends on beside the model."""

    mapping: Mapping
    dtype: str
    quant_algo: str | None = None
    """Scheme by which the matrices of the layers are kept; None: as floating numbers."""
    group_size: int | None = None
    """Weights that share a scale; None: a row."""
    as_stored: bool = False
    """Whether weights are kept in whatever way the checkpoint is quantised."""
    cache_algo: str | None = None
    """Quantisation of the cache."""
    sequences: int
    """Whose cache is there at full length at the same time, all beams counted."""
    length: int
    """Tokens of a sequence."""
    step_tokens: int
    """Tokens that are computed at once."""
    windowed_cache: bool = False
    """Whether a layer with a window keeps its window alone; own caches keep the whole sequence."""
    split_vocabulary: bool = True
    """Whether the tensor ranks share the embedding table."""


def table(facts: ModelFacts, load: Load, gpu: Gpu | None = None) -> MemoryTable:
    """Of the rank that needs most: tensor ranks are equal, stages are not."""
    stages = [_stage(facts, load, stage) for stage in range(load.mapping.pp)]
    worst = max(range(len(stages)), key=lambda stage: sum(row.bytes for row in stages[stage]))
    return MemoryTable(rank=worst * load.mapping.tp * load.mapping.cp, rows=stages[worst], gpu=gpu)


def largest(fits: Callable[[int], bool], most: int) -> int | None:
    """The greatest number from 1 to `most` that fits, if what fits also fits when it is smaller; None: not even 1."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low or None


def stage_layers(layers: int, stages: int, stage: int) -> int:
    """As evenly as possible; the first stages get the extra ones."""
    return layers // stages + (stage < layers % stages)


def kv_heads(facts: ModelFacts, tp: int) -> int:
    """Key and value heads of one rank: each rank holds at least one, so with more ranks than heads they are copied."""
    return max(1, -(-facts.num_key_value_heads // tp))


def cache_bytes(facts: ModelFacts, load: Load, layers: int | None = None) -> int:
    """Of one rank that holds `layers` layers (all, unless said): the product of the network's cache shapes."""
    layers = facts.num_layers if layers is None else layers
    windowed = facts.windowed_layers * layers // facts.num_layers if _windows(facts, load) else 0
    length = -(-load.length // load.mapping.cp)
    positions = windowed * min(length, facts.sliding_window or length) + (layers - windowed) * length
    per_position = 2 * kv_heads(facts, load.mapping.tp) * facts.head_dim
    return int(per_position * positions * load.sequences * _cache_bits(load) / 8)


def _windows(facts: ModelFacts, load: Load) -> bool:
    return load.windowed_cache and facts.sliding_window is not None and facts.windowed_layers > 0


def weight_bits(algo: str | None, dtype: str, group_size: int = 128) -> float:
    """Bits of one weight of a quantised layer, its share of the scales included; `group_size`: weights of a scale."""
    per_group = 16 / group_size
    # Those have the type of the engine, and the rows of schemes without groups have one too.
    scale = DTYPE_BYTES[dtype] * 8 / group_size
    bits = {
        "W8A16": 8 + scale,
        "W4A16": 4 + scale,
        "W4A16_AWQ": 4 + per_group,
        "W4A8_AWQ": 4 + per_group,
        "W8A16_GPTQ": 8 + per_group,
        "W4A16_GPTQ": 4 + per_group,
        "W4A8_QSERVE_PER_GROUP": 4 + per_group,
        "W4A8_QSERVE_PER_CHANNEL": 4.0,
        "FP8": 8.0,
        "FP8_PER_CHANNEL_PER_TOKEN": 8.0,
        "FP8_BLOCK_SCALES": 8 + BLOCK_SCALE,
        "NVFP4": 4 + 8 / 16,
    }
    if algo is not None and algo.startswith("W8A8_SQ"):
        return 8.0
    # MIXED_PRECISION says nothing about a single layer: counted as if it were not quantised.
    return bits.get(algo or "", DTYPE_BYTES[dtype] * 8)


def _cache_bits(load: Load) -> float:
    return {"FP8": 8.0, "INT8": 8.0, "NVFP4": 4.5}.get(load.cache_algo or "", DTYPE_BYTES[load.dtype] * 8)


def _stage(facts: ModelFacts, load: Load, stage: int) -> tuple[MemoryRow, ...]:
    layers = stage_layers(facts.num_layers, load.mapping.pp, stage)
    rows = (
        _weights(facts, load, stage, layers),
        _cache(facts, load, layers),
        _activations(facts, load, last=stage == load.mapping.pp - 1),
    )
    return (*rows, _runtime(load))


def _weights(facts: ModelFacts, load: Load, stage: int, layers: int) -> MemoryRow:
    tp, pp, hidden = load.mapping.tp, load.mapping.pp, facts.hidden_size
    first, last = stage == 0, stage == pp - 1
    table_size = facts.vocab_size * hidden
    # Tied embeddings are one tensor: counted once where one stage has both ends, and on either stage otherwise.
    tables = (first + last) if pp > 1 or not facts.tied_embeddings else 1
    outside = table_size * (1 if facts.tied_embeddings else 2) + hidden
    layer = max(0, facts.parameters - outside) * layers // facts.num_layers
    norms = min(layer, 2 * hidden * layers)
    keys = min(layer - norms, 2 * hidden * facts.num_key_value_heads * facts.head_dim * layers)
    shared = (layer - norms - keys) // tp
    copied = keys * kv_heads(facts, tp) // facts.num_key_value_heads
    vocabulary = tables * table_size // (tp if load.split_vocabulary else 1) + last * hidden
    plain: float = DTYPE_BYTES[load.dtype] * 8
    if load.as_stored:
        bits = facts.weight_bytes * 8 / facts.parameters
        plain, how = bits, f"{bits / 8:.2f} bytes each, as stored ({facts.quantization})"
    else:
        bits = weight_bits(load.quant_algo, load.dtype, load.group_size or hidden)
        how = f"{bits / 8:.4g} bytes each" + (
            f" ({load.quant_algo}; embeddings and norms {load.dtype})" if load.quant_algo else ""
        )
    linear, rest = shared + copied, norms + vocabulary
    spread = "" if tp * pp == 1 else f" ({layers} of {facts.num_layers} layers, shared by {tp})"
    return MemoryRow(
        what="weights",
        bytes=int((linear * bits + rest * plain) / 8),
        arithmetic=f"{linear + rest:,} of {facts.parameters:,} parameters{spread} x {how}",
    )


def _cache(facts: ModelFacts, load: Load, layers: int) -> MemoryRow:
    window = f", windowed layers {facts.sliding_window}" if _windows(facts, load) else ""
    sequences = f"{load.sequences} sequence{'s' if load.sequences > 1 else ''}"
    text = (
        f"{sequences} x {load.length} tokens{window} x 2 x {layers} layers x "
        f"{kv_heads(facts, load.mapping.tp)} heads x {facts.head_dim} wide x {_cache_bits(load) / 8:g} bytes"
        + (f" / {load.mapping.cp} context ranks" if load.mapping.cp > 1 else "")
    )
    return MemoryRow(what="cache", bytes=cache_bytes(facts, load, layers), arithmetic=text)


def _activations(facts: ModelFacts, load: Load, *, last: bool) -> MemoryRow:
    tp, width = load.mapping.tp, DTYPE_BYTES[load.dtype]
    heads = (facts.num_attention_heads // tp + 2 * kv_heads(facts, tp)) * facts.head_dim
    inner = (facts.experts_per_token * facts.expert_intermediate_size or facts.intermediate_size) // tp
    values = 2 * facts.hidden_size + heads + 2 * inner
    logits = load.sequences * facts.vocab_size * 4 if last else 0
    text = f"{load.step_tokens} tokens x {values} values x {width} bytes x {LIVE_COPIES}, and the logits; estimate"
    return MemoryRow(
        what="activations", bytes=load.step_tokens * values * width * LIVE_COPIES + logits, arithmetic=text
    )


def _runtime(load: Load) -> MemoryRow:
    peers = COMMUNICATION_BYTES if load.mapping.world_size > 1 else 0
    text = "CUDA context and workspaces" + (", communication" if peers else "") + "; estimate"
    return MemoryRow(what="runtime", bytes=RUNTIME_BYTES + peers, arithmetic=text)


def _gib(amount: int) -> str:
    return f"{amount / GIB:.2f} GiB"
