"""Arbitration: what the user left open is chosen, what cannot be as written is adjusted, and both are told.

Only what the user wrote is ever refused for not fitting (`validate`); here a value is always found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trtllm_engine.contract import BuildArgs, ModelFacts, Target, Toolchain

from ..api.engine_options import Device
from ..api.problems import Adjustment
from . import projection
from .capability import BFLOAT16_SINCE, CAPABILITIES, parse
from .defaults import Defaults
from .projection import Spec

LONGEST_UNASKED: Final = 8192
"""Tokens of a sequence when the user names no length: a longer cache is paid for only by those who ask for it."""
BATCH_UNASKED: Final = 8
"""Sequences of a batch when the user names no number."""
DTYPE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}
SIZES: Final = "spec.buildConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arbitrated:
    """Arguments with nothing left open, and how they came about."""

    args: BuildArgs
    target: Target
    adjustments: tuple[Adjustment, ...]


def arbitrate(spec: Spec, facts: ModelFacts, defaults: Defaults) -> Arbitrated:
    """Choose for a spec that `validate` has nothing against."""
    toolchain = projection.toolchain(spec, defaults)
    target, target_told = _target(spec, toolchain)
    dtype, dtype_told = _dtype(spec, facts, toolchain, target)
    args, sizes_told = _sizes(spec, facts, dtype)
    return Arbitrated(args=args, target=target, adjustments=(*target_told, *dtype_told, *sizes_told))


def weight_bytes(facts: ModelFacts, dtype: str) -> int:
    """Bytes of the weights in the engine's dtype."""
    return facts.parameters * DTYPE_BYTES[dtype]


def cache_bytes(facts: ModelFacts, args: BuildArgs) -> int:
    """Bytes of the key and value cache of all sequences at full length."""
    per_token = 2 * facts.num_layers * facts.num_key_value_heads * facts.head_dim * DTYPE_BYTES[args.dtype]
    return per_token * args.max_seq_len * args.max_batch_size


def _target(spec: Spec, toolchain: Toolchain) -> tuple[Target, list[Adjustment]]:
    written = projection.options(spec).target.compute_capability
    if CAPABILITIES[toolchain].targets or written is None:
        return Target(compute_capability=written), []
    path = f"{projection.options_path(spec)}.target.computeCapability"
    reason = f"engines of toolchain {toolchain} run on any device"
    return Target(), [Adjustment(path=path, from_value=written, to_value="any", reason=reason)]


def _dtype(spec: Spec, facts: ModelFacts, toolchain: Toolchain, target: Target) -> tuple[str, list[Adjustment]]:
    if spec.dtype not in (None, "auto"):
        return str(spec.dtype), []

    def chosen(dtype: str, reason: str) -> tuple[str, list[Adjustment]]:
        return dtype, [Adjustment(path="spec.dtype", from_value=spec.dtype, to_value=dtype, reason=reason)]

    if toolchain is Toolchain.TORCH and projection.device(spec) is Device.CPU:
        return chosen(facts.dtype, "the checkpoint's own, because a CPU gains nothing from a shorter one")
    if facts.dtype == "float32":
        return chosen("float16", "float32 checkpoints are served as float16 unless dtype says float32")
    capability = target.compute_capability
    if facts.dtype == "bfloat16" and capability is not None and parse(capability) < BFLOAT16_SINCE:
        return chosen("float16", f"compute capability {capability} has no bfloat16")
    return facts.dtype, []


def _sizes(spec: Spec, facts: ModelFacts, dtype: str) -> tuple[BuildArgs, list[Adjustment]]:
    written, told = spec.build_config, []
    sequence, prompt, batch = written.max_seq_len, written.max_input_len, written.max_batch_size
    if sequence is None:
        sequence = min(facts.max_position_embeddings, max(LONGEST_UNASKED, prompt or 0))
        why = f"the model's {facts.max_position_embeddings}, at most {LONGEST_UNASKED} unless asked for"
        told.append(Adjustment(path=f"{SIZES}.maxSeqLen", to_value=str(sequence), reason=why))
    if prompt is None:
        prompt = sequence
        told.append(
            Adjustment(path=f"{SIZES}.maxInputLen", to_value=str(prompt), reason="a prompt may fill the whole sequence")
        )
    elif prompt > sequence:
        why = f"a prompt cannot be longer than its sequence of {sequence} tokens"
        told.append(Adjustment(path=f"{SIZES}.maxInputLen", from_value=str(prompt), to_value=str(sequence), reason=why))
        prompt = sequence
    args = BuildArgs(dtype=dtype, max_batch_size=batch or BATCH_UNASKED, max_input_len=prompt, max_seq_len=sequence)
    if batch is None:
        gib = cache_bytes(facts, args) / 2**30
        why = f"the default; the cache of {args.max_batch_size} sequences of {sequence} tokens takes {gib:.2f} GiB"
        told.append(Adjustment(path=f"{SIZES}.maxBatchSize", to_value=str(args.max_batch_size), reason=why))
    return args, told
