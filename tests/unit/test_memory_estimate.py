"""What the operator says a rank will need, held against engines that are really built.

Weights: against the size of the plan less a base that is measured too, by the same network with next to no weights.
Cache: against the product of the shapes that the network declares.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import tensorrt_rtx as trt
import torch

from tests.models import tiny_llama
from tests.unit.engine.conftest import Workspace
from trtllm_engine import contract
from trtllm_engine.build.engine_folder import read_engine
from trtllm_engine.checkpoint.inspect import inspect_model
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.contract import BuildArgs, ModelFacts, QuantAlgo, QuantArgs, Toolchain, rank_file
from trtllm_engine.network.rank import Rank
from trtllm_engine.network.tensorrt_ops import define_network
from trtllm_operator.resolve.memory import Load, cache_bytes, table

TOLERANCE: Final = 0.02
"""Of the estimate of the weights."""

WIDE: Final = {"hidden_size": 768, "intermediate_size": 2048, "vocab_size": 16384, "num_attention_heads": 12}
"""About 40 M parameters: many beside a base of a few MB, and built in seconds."""
NARROW: Final = {"hidden_size": 128, "intermediate_size": 256, "vocab_size": 512, "num_attention_heads": 2}
"""The same network and width of heads with few weights."""

QUANTISED: Final = QuantArgs(algo=QuantAlgo.W4A16, group_size=64)

# Six shapes whose weights are counted differently -> (architecture, dtype of the engine, config).
ENGINES: Final[Mapping[str, tuple[str, str, Mapping[str, Any]]]] = {
    "separate embeddings": ("Llama", "float16", {}),
    "tied embeddings": ("Llama", "bfloat16", {"tie_word_embeddings": True}),
    "one key and value head": ("Llama", "float16", {"num_key_value_heads": 1}),
    "many layers": ("Llama", "bfloat16", {"num_hidden_layers": 6}),
    "biases": ("Qwen2", "float16", {}),
    "no sliding window": ("Mistral", "bfloat16", {"sliding_window": None}),
}


class Built:
    """A random model of this shape, inspected and built into a plan."""

    def __init__(self, folder: Path, name: str, size: Mapping[str, int], quant: QuantArgs | None = None) -> None:
        architecture, dtype, shape = ENGINES[name]
        self.workspace = Workspace(folder)
        tiny_llama(self.workspace.model, architecture=architecture, dtype=dtype, **{**size, **shape})
        self.facts: ModelFacts = inspect_model(self.workspace.model)
        request = self.workspace.request(Toolchain.TENSORRT_RTX, dtype=dtype, quant=quant)
        self.workspace.build(request)
        self.args: BuildArgs = request.args
        self.plan_bytes = (self.workspace.engine / rank_file(0)).stat().st_size

    @property
    def load(self) -> Load:
        return Load(
            mapping=contract.Mapping(),
            dtype=self.args.dtype,
            quant_algo=None if self.args.quant is None else self.args.quant.algo,
            group_size=None if self.args.quant is None else self.args.quant.group_size,
            sequences=self.args.max_batch_size,
            length=self.args.max_seq_len,
            step_tokens=self.args.max_input_len,
        )

    @property
    def estimated_weights(self) -> int:
        (weights,) = (row.bytes for row in table(self.facts, self.load).rows if row.what == "weights")
        return weights


@pytest.mark.parametrize("name", ENGINES)
def test_estimates_of_weights_and_cache_hold_for_a_real_engine(name: str, tmp_path: Path) -> None:
    built, empty = Built(tmp_path / "wide", name, WIDE), Built(tmp_path / "narrow", name, NARROW)
    base = empty.plan_bytes - empty.estimated_weights
    measured = built.plan_bytes - base
    assert measured == pytest.approx(built.estimated_weights, rel=TOLERANCE)

    assert cache_bytes(built.facts, built.load) == declared_cache_bytes(built)


def test_estimates_of_quantised_weights_hold_for_a_real_engine(tmp_path: Path) -> None:
    """More layers than elsewhere: as in large models, most of the weights are in them."""
    name = "many layers"
    built, empty = (
        Built(tmp_path / part, name, size, QUANTISED) for part, size in (("wide", WIDE), ("narrow", NARROW))
    )
    base = empty.plan_bytes - empty.estimated_weights
    assert built.plan_bytes - base == pytest.approx(built.estimated_weights, rel=TOLERANCE)
    wide = dataclasses.replace(built.load, quant_algo=None, group_size=None)
    assert built.estimated_weights < 0.6 * table(built.facts, wide).rows[0].bytes


def declared_cache_bytes(built: Built) -> int:
    """Of the caches that the real network has as inputs, for the largest batch."""
    config = read_engine(built.workspace.engine).config
    dtype: torch.dtype = getattr(torch, built.args.dtype)
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network(0)
    weights = dict(load_weights(built.workspace.model, config, dtype, Rank()))
    kept = define_network(trt, network, config, weights, dtype, built.args.max_seq_len, rank=Rank())
    inputs = (network.get_input(index) for index in range(network.num_inputs))
    shapes = [tuple(tensor.shape) for tensor in inputs if tensor.name.startswith("past_")]
    del kept
    rows = built.args.max_batch_size
    return sum(math.prod(rows if size < 0 else size for size in shape) for shape in shapes) * dtype.itemsize
