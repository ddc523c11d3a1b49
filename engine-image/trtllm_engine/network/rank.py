"""One rank's place among the ranks of a model, and which part of the decoder it holds.

A tensor group of `tp` ranks splits heads, MLP and vocabulary; a pipeline of `pp` stages splits the layers. In a mixture
the tensor group splits the experts: `moe_ep` ways into different experts, and `moe_tp` ways within each expert.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from trtllm_engine.contract import ExitCode, Mapping
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import DecoderConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Rank `index` of `mapping`; tp is fastest, then pp. All ranges count within the whole model."""

    mapping: Mapping = field(default_factory=Mapping)
    index: int = 0

    @property
    def tp_size(self) -> int:
        return self.mapping.tp

    @property
    def tp_rank(self) -> int:
        """Place in the tensor group."""
        return self.index % self.mapping.tp

    @property
    def stage(self) -> int:
        """Place in the pipeline."""
        return self.index // self.mapping.tp

    @property
    def is_first_stage(self) -> bool:
        """It takes tokens; the others take hidden states."""
        return self.stage == 0

    @property
    def is_last_stage(self) -> bool:
        """It gives logits; the others give hidden states."""
        return self.stage == self.mapping.pp - 1

    @property
    def previous(self) -> int:
        """The rank whose hidden states this one takes."""
        return self.index - self.mapping.tp

    @property
    def next(self) -> int:
        """The rank that takes this one's hidden states."""
        return self.index + self.mapping.tp

    @property
    def tensor_group(self) -> range:
        """The ranks of the same stage, this one included."""
        return range(self.stage * self.mapping.tp, (self.stage + 1) * self.mapping.tp)

    def layers(self, config: DecoderConfig) -> range:
        """The first stages have one layer more where the layers do not divide."""
        each, more = divmod(config.num_layers, self.mapping.pp)
        start = self.stage * each + min(self.stage, more)
        return range(start, start + each + (1 if self.stage < more else 0))

    def heads(self, config: DecoderConfig) -> range:
        return _share(config.num_heads, self.tp_rank, self.tp_size)

    def kv_heads(self, config: DecoderConfig) -> range:
        """Where there are fewer than ranks, neighbours hold the same one."""
        if config.num_kv_heads >= self.tp_size:
            return _share(config.num_kv_heads, self.tp_rank, self.tp_size)
        head = self.tp_rank * config.num_kv_heads // self.tp_size
        return range(head, head + 1)

    def mlp(self, config: DecoderConfig) -> range:
        """Columns of the dense MLP."""
        return _share(config.intermediate_size, self.tp_rank, self.tp_size)

    def splits_vocabulary(self, config: DecoderConfig) -> bool:
        """A vocabulary that does not divide is held whole by every rank."""
        return self.tp_size > 1 and config.vocab_size % self.tp_size == 0

    def vocabulary(self, config: DecoderConfig) -> range:
        if not self.splits_vocabulary(config):
            return range(config.vocab_size)
        return _share(config.vocab_size, self.tp_rank, self.tp_size)

    def experts(self, config: DecoderConfig) -> range:
        """Which experts; neighbours in the tensor group hold different ones."""
        _, ep = self.mapping.expert_sizes
        return _share(config.experts, self.tp_rank % ep, ep)

    def expert_mlp(self, config: DecoderConfig) -> range:
        """Columns of each of these experts."""
        tp, ep = self.mapping.expert_sizes
        return _share(config.expert_intermediate_size, self.tp_rank // ep, tp)


WHOLE: Final = Rank()
"""The only rank of a model that is not split."""


def check_mapping(config: DecoderConfig, mapping: Mapping) -> None:
    """Raise UNSUPPORTED, naming the sizes, for a mapping that this decoder cannot be split by."""
    tp = mapping.tp
    if smallest := [f"{name} {size}" for name, size in mapping.to_dict().items() if size < 1]:
        raise _unsupported(f"{smallest[0]} is below 1")
    moe_tp, moe_ep = mapping.expert_sizes
    if moe_tp * moe_ep != tp:
        raise _unsupported(f"the expert sizes {moe_tp} * {moe_ep} must make tp {tp}")
    if mapping.cp > 1:
        raise _unsupported(f"context parallelism ({mapping.cp}) is not implemented; use tp or pp")
    if mapping.pp > config.num_layers:
        raise _unsupported(f"{config.num_layers} layers do not make {mapping.pp} pipeline stages")
    kv_heads = config.num_kv_heads
    if kv_heads % tp and tp % kv_heads:
        raise _unsupported(f"{kv_heads} key/value heads neither divide by tp {tp} nor divide it")
    divided = {"attention heads": (config.num_heads, tp)}
    if len(config.sparse_layers) < config.num_layers:
        divided["intermediate size"] = (config.intermediate_size, tp)
    if config.sparse_layers:
        divided |= {
            "experts": (config.experts, moe_ep),
            "expert intermediate size": (config.expert_intermediate_size, moe_tp),
        }
    for name, (size, parts) in divided.items():
        if size % parts:
            allowed = ", ".join(str(n) for n in range(1, min(size, 64) + 1) if size % n == 0)
            raise _unsupported(f"{name}: {size} does not divide by {parts}; it divides by {allowed}")


def _share(size: int, part: int, parts: int) -> range:
    each = size // parts
    return range(part * each, (part + 1) * each)


def _unsupported(message: str) -> Failure:
    return Failure(ExitCode.UNSUPPORTED, f"mapping: {message}", field="mapping")
