"""The decoder's operations as layers of a TensorRT network.

Written against the layer API that TensorRT 11 and TensorRT for RTX 1.7 share; which of them is used is the module that
is passed in. Networks are strongly typed: operands of a layer have equal types and equal ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

import torch

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import Activation, DecoderConfig
from trtllm_engine.network.decoder import decoder
from trtllm_engine.network.quantized import INPUT_SCALE, SCALES, VALUES
from trtllm_engine.network.rank import WHOLE, Rank
from trtllm_engine.network.rope import rope_tables

TrtTensor = Any
"""An ITensor; TensorRT's Python package carries no types."""
TrtNetwork = Any
"""An INetworkDefinition."""


INPUTS: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "input_ids": ("int32", (-1, -1)),
    "position_ids": ("int64", (-1, -1)),
    "write_indices": ("int32", (-1,)),
    "kv_lengths": ("int32", (-1,)),
    "last_token_ids": ("int32", (-1,)),
}
"""Type and shape of every input beside hidden states and caches; a network has those that its layers need.

- input_ids [B, S]: on the first stage.
- position_ids [B, S]: which rows of the rotary tables to use, and where the queries are in the cache.
- write_indices [B]: cache position of each row's first token.
- kv_lengths [B]: write_indices + S, padding included; with the lower-right causal mask it means "key position is at
  most query position", for prefill, chunks, decoding and right-padded batches alike.
- last_token_ids [B]: which of the S tokens to compute logits for; on the last stage.
"""


class TensorRtOps:
    """Adds one layer or a few for each operation.

    `weights` are the rank's, named by `weight_name`, in the type of the network, or the values and scales of quantised
    ones, and the scales of their inputs; TensorRT keeps only pointers to them, so they and `constants` must live until
    the engine is built. Constant layers are named after what they hold.
    Collectives are over the rank's tensor group: that is the communicator which the runtime gives.
    """

    def __init__(
        self,
        trt: ModuleType,
        network: TrtNetwork,
        config: DecoderConfig,
        weights: Mapping[str, torch.Tensor],
        dtype: torch.dtype,
        max_seq_len: int,
        rank: Rank,
    ) -> None:
        self._trt = trt
        self._network = network
        self._config = config
        self._weights = weights
        self._dtype = dtype
        self._max_seq_len = max_seq_len
        self._rank = rank
        self._inputs: dict[str, TrtTensor] = {}
        self._tables: dict[bool, tuple[TrtTensor, TrtTensor]] = {}
        self._masks: dict[int | None, TrtTensor] = {}
        self.constants: dict[str, torch.Tensor] = {}
        """Every constant by its layer's name, as TensorRT sees it."""

    def input(self, name: str) -> TrtTensor:
        """One of `INPUTS`, added to the network when it is first needed: it may have none that nothing uses."""
        if name not in self._inputs:
            dtype, shape = INPUTS[name]
            self._inputs[name] = self._network.add_input(name, getattr(self._trt, dtype), shape)
        return self._inputs[name]

    def embed(self, ids: TrtTensor, table: str, vocabulary: range | None) -> TrtTensor:
        rows = self._constant(f"{table}.rows", self._weight(table), self._weight(table).shape)
        if vocabulary is None:
            return self._add(self._network.add_gather(rows, ids, 0), table)
        operation = self._trt.ElementWiseOperation

        def bound(value: int) -> TrtTensor:
            return self._constant(f"{table}.{value}", torch.tensor([value], dtype=torch.int32), (1, 1))

        here = self._elementwise(
            self._elementwise(ids, bound(vocabulary.start), operation.MAX), bound(vocabulary.stop - 1), operation.MIN
        )
        inside = self._cast(self._elementwise(here, ids, operation.EQUAL), self._dtype)
        index = self._elementwise(here, bound(vocabulary.start), operation.SUB)
        found = self._add(self._network.add_gather(rows, index, 0), table)
        return self._elementwise(found, self._reshape(inside, (0, 0, 1)), operation.PROD)

    def linear(self, x: TrtTensor, weight: str, bias: str | None) -> TrtTensor:
        product = self._multiply(self._rounded(x, weight), self._matrix(weight), f"{weight}.product")
        return product if bias is None else self.add_bias(product, bias)

    def add_bias(self, x: TrtTensor, bias: str) -> TrtTensor:
        return self.add(x, self._constant(bias, self._weight(bias), (1, 1, -1)))

    def rms_norm(self, x: TrtTensor, weight: str, eps: float, offset: float) -> TrtTensor:
        """Composed by hand: add_normalization subtracts the mean."""
        operation, unary = self._trt.ElementWiseOperation, self._trt.UnaryOperation
        rank = len(x.shape)
        wide = self._cast(x, torch.float32)
        square = self._elementwise(wide, wide, operation.PROD)
        mean = self._reduce(square, self._trt.ReduceOperation.AVG, rank - 1)
        epsilon = self._constant(f"{weight}.eps", torch.full((1,), eps), (1,) * rank)
        root = self._unary(self._elementwise(mean, epsilon, operation.SUM), unary.SQRT)
        normal = self._elementwise(wide, self._unary(root, unary.RECIP), operation.PROD)
        shape = (*(1,) * (rank - 1), -1)
        if offset:
            scale = self._constant(weight, self._weight(weight).float() + offset, shape)
            return self._cast(self._elementwise(normal, scale, operation.PROD), self._dtype)
        scale = self._constant(weight, self._weight(weight), shape)
        return self._elementwise(self._cast(normal, self._dtype), scale, operation.PROD)

    def split_heads(self, x: TrtTensor, heads: int, head_dim: int) -> TrtTensor:
        layer = self._network.add_shuffle(x)
        layer.reshape_dims = (0, 0, heads, head_dim)
        layer.second_transpose = (0, 2, 1, 3)
        return self._add(layer, "split_heads")

    def merge_heads(self, x: TrtTensor) -> TrtTensor:
        layer = self._network.add_shuffle(x)
        layer.first_transpose = (0, 2, 1, 3)
        layer.reshape_dims = (0, 0, -1)
        return self._add(layer, "merge_heads")

    def rotate(self, x: TrtTensor, local: bool) -> TrtTensor:
        if local not in self._tables:
            tables = rope_tables(self._config, self._max_seq_len, local=local)
            names = ("rope.local.cosines", "rope.local.sines") if local else ("rope.cosines", "rope.sines")
            cosines, sines = (
                self._constant(name, table.to(self._dtype), table.shape)
                for name, table in zip(names, tables, strict=True)
            )
            self._tables[local] = cosines, sines
        part = 0 if self._config.rotated == self._config.head_dim else self._config.rotated
        layer = self._network.add_rotary_embedding(x, *self._tables[local], False, part)
        layer.set_input(3, self.input("position_ids"))
        return self._add(layer, "rotate")

    def attend(
        self,
        layer: int,
        query: TrtTensor,
        key: TrtTensor,
        value: TrtTensor,
        scale: float,
        window: int | None,
        cap: float | None,
    ) -> TrtTensor:
        keys = self.update_cache(f"key_{layer}", key)
        values = self.update_cache(f"value_{layer}", value)
        scaled = self._times(query, scale, f"attention.scale.{layer}")
        if window is not None and window >= self._max_seq_len:
            window = None  # it hides nothing
        if cap is not None:
            return self._capped_attention(layer, scaled, keys, values, window, cap)
        kinds = self._trt.CausalMaskKind
        attention = self._network.add_attention_v2(
            scaled,
            keys,
            values,
            self._trt.AttentionNormalizationOp.SOFTMAX,
            kinds.LOWER_RIGHT if window is None else kinds.NONE,
        )
        if window is None:
            attention.key_value_lengths = self.input("kv_lengths")
        else:
            attention.mask = self._mask(window)
        # Without it a type or head size that has no fused kernel fails the build.
        attention.decomposable = True
        return self._add(attention, f"attention.{layer}")

    def update_cache(self, name: str, update: TrtTensor) -> TrtTensor:
        """Input past_<name> and output present_<name> [B, Nkv, S_max, H]; at run time both are the same memory."""
        shape = (-1, len(self._rank.kv_heads(self._config)), self._max_seq_len, self._config.head_dim)
        cache = self._network.add_input(f"past_{name}", trt_dtype(self._trt, self._dtype), shape)
        layer = self._network.add_kv_cache_update(
            cache, update, self.input("write_indices"), self._trt.KVCacheMode.LINEAR
        )
        present = self._add(layer, f"cache.{name}")
        present.name = f"present_{name}"
        self._network.mark_output(present)
        return present

    def add(self, x: TrtTensor, y: TrtTensor) -> TrtTensor:
        return self._elementwise(x, y, self._trt.ElementWiseOperation.SUM)

    def scale(self, x: TrtTensor, factor: float) -> TrtTensor:
        return self._times(x, factor, "scale")

    def gate(self, activation: Activation, gate: TrtTensor, up: TrtTensor) -> TrtTensor:
        product, kinds = self._trt.ElementWiseOperation.PROD, self._trt.ActivationType
        if activation is Activation.GELU_TANH:
            return self._elementwise(self._activation(gate, kinds.GELU_TANH), up, product)
        return self._elementwise(self._elementwise(gate, self._activation(gate, kinds.SIGMOID), product), up, product)

    def route(self, x: TrtTensor, router: str, chosen: int, normalized: bool, experts: range) -> TrtTensor:
        operation, last = self._trt.ElementWiseOperation, 2
        scores = self._softmax(self._cast(self.linear(x, router, None), torch.float32), last)
        layer = self._network.add_topk(scores, self._trt.TopKOperation.MAX, chosen, 1 << last)
        largest, which = self._add(layer, f"{router}.chosen"), layer.get_output(1)
        if normalized:
            total = self._reduce(largest, self._trt.ReduceOperation.SUM, last)
            largest = self._elementwise(largest, total, operation.DIV)
        ours = self._constant(
            f"{router}.experts", torch.arange(experts.start, experts.stop, dtype=torch.int32), (1, 1, 1, -1)
        )
        is_ours = self._elementwise(self._reshape(which, (0, 0, 0, 1)), ours, operation.EQUAL)
        counts = self._elementwise(
            self._reshape(largest, (0, 0, 0, 1)), self._cast(is_ours, torch.float32), operation.PROD
        )
        summed = self._reduce(counts, self._trt.ReduceOperation.SUM, last)
        return self._reshape(summed, (0, 0, len(experts)))

    def experts(
        self, x: TrtTensor, routing: TrtTensor, activation: Activation, gate: str, up: str, down: str
    ) -> TrtTensor:
        """Every expert computes every token: exact for any routing, and E / k times the work of a grouped kernel."""

        def linear(x: TrtTensor, weight: str) -> TrtTensor:
            return self._multiply(x, self._matrix(weight), f"{weight}.product")

        tokens = self._reshape(x, (0, 1, -1, self._config.hidden_size))
        answers = linear(self.gate(activation, linear(tokens, gate), linear(tokens, up)), down)
        layer = self._network.add_shuffle(self._cast(routing, self._dtype))
        layer.first_transpose = (0, 2, 1)
        layer.reshape_dims = (0, 0, 0, 1)
        weighted = self._elementwise(answers, self._add(layer, "routing"), self._trt.ElementWiseOperation.PROD)
        total = self._reduce(weighted, self._trt.ReduceOperation.SUM, 1)
        return self._reshape(total, (0, -1, self._config.hidden_size))

    def pick(self, x: TrtTensor, index: TrtTensor) -> TrtTensor:
        layer = self._network.add_gather_v2(x, self._reshape(index, (0, 1)), self._trt.GatherMode.DEFAULT)
        layer.axis = 1
        layer.num_elementwise_dims = 1
        return self._add(layer, "pick")

    def float32(self, x: TrtTensor) -> TrtTensor:
        return self._cast(x, torch.float32)

    def soft_cap(self, x: TrtTensor, cap: float) -> TrtTensor:
        inner = self._activation(self._times(x, 1 / cap, "cap"), self._trt.ActivationType.TANH)
        return self._times(inner, cap, "cap")

    def all_reduce(self, x: TrtTensor) -> TrtTensor:
        return self._collective(x, self._trt.CollectiveOperation.ALL_REDUCE, self._trt.ReduceOperation.SUM)

    def all_gather(self, x: TrtTensor) -> TrtTensor:
        """The library gathers the first dimension."""
        front = self._network.add_shuffle(x)
        front.first_transpose = (2, 0, 1)
        operation = self._trt.CollectiveOperation.ALL_GATHER
        gathered = self._collective(self._add(front, "gather.front"), operation, self._trt.ReduceOperation.NONE)
        back = self._network.add_shuffle(gathered)
        back.first_transpose = (1, 2, 0)
        return self._add(back, "gather.back")

    def _collective(self, x: TrtTensor, operation: Any, reduction: Any) -> TrtTensor:
        layer = self._network.add_dist_collective(x, operation, reduction, -1, None)
        if layer is not None:
            layer.num_ranks = self._rank.tp_size
        return self._add(layer, "collective")

    def _capped_attention(
        self, layer: int, query: TrtTensor, keys: TrtTensor, values: TrtTensor, window: int | None, cap: float
    ) -> TrtTensor:
        """The attention layer has no cap, so it is composed; the queries of a key head are stacked to share it."""
        heads, kv_heads = len(self._rank.heads(self._config)), len(self._rank.kv_heads(self._config))
        stacked = self._reshape(query, (0, kv_heads, -1, self._config.head_dim))
        scores = self._multiply(stacked, keys, f"scores.{layer}")
        scores = self._cast(self._reshape(scores, (0, heads, -1, self._max_seq_len)), torch.float32)
        capped = self.soft_cap(scores, cap)
        nothing = self._constant(f"attention.hidden.{layer}", torch.full((1,), -torch.inf), (1, 1, 1, 1))
        seen = self._add(self._network.add_select(self._mask(window), capped, nothing), f"seen.{layer}")
        weights = self._cast(self._softmax(seen, 3), self._dtype)
        stacked = self._reshape(weights, (0, kv_heads, -1, self._max_seq_len))
        none = self._trt.MatrixOperation.NONE
        context = self._add(self._network.add_matrix_multiply(stacked, none, values, none), f"context.{layer}")
        return self._reshape(context, (0, heads, -1, self._config.head_dim))

    def _mask(self, window: int | None) -> TrtTensor:
        """bool [B, 1, S, S_max], True where a query may look; one for all layers of a window."""
        if window not in self._masks:
            operation = self._trt.ElementWiseOperation
            queries = self._reshape(self.input("position_ids"), (0, 1, -1, 1))
            keys = self._constant(f"mask.keys.{window}", torch.arange(self._max_seq_len), (1, 1, 1, -1))
            one = self._constant(f"mask.one.{window}", torch.ones(1, dtype=torch.long), (1, 1, 1, 1))
            mask = self._elementwise(keys, self._elementwise(queries, one, operation.SUM), operation.LESS)
            if window is not None:
                width = self._constant(f"mask.width.{window}", torch.tensor([window]), (1, 1, 1, 1))
                oldest = self._elementwise(queries, width, operation.SUB)
                mask = self._elementwise(mask, self._elementwise(keys, oldest, operation.GREATER), operation.AND)
            self._masks[window] = mask
        return self._masks[window]

    def _weight(self, name: str) -> torch.Tensor:
        return self._weights[name]

    def _rounded(self, x: TrtTensor, weight: str) -> TrtTensor:
        """Quantised and dequantised where the weight has a scale for it: the builder multiplies what is between."""
        name = weight + INPUT_SCALE
        if name not in self._weights:
            return x
        scale = self._constant(name, self._weight(name), ())
        kind = trt_dtype(self._trt, self._weight(weight + VALUES).dtype)
        small = self._add(self._network.add_quantize(x, scale, kind), f"{weight}.quantized")
        wide = self._network.add_dequantize(small, scale, trt_dtype(self._trt, self._dtype))
        return self._add(wide, f"{weight}.rounded")

    def _matrix(self, name: str) -> TrtTensor:
        """[1, ..., out, in], in the type of the network: a constant, or made of values and scales at run time."""
        if name in self._weights:
            return self._constant(name, self._weight(name), (1, *self._weight(name).shape))
        values, scales = self._weight(name + VALUES).flatten(0, -2), self._weight(name + SCALES)
        groups = scales.shape[-1]
        one = groups == 1  # for a row: then they are a vector, and the layer is told the axis
        layer = self._network.add_dequantize(
            self._small_constant(name + VALUES, values),
            self._constant(name + SCALES, scales, (-1,) if one else (-1, groups)),
            trt_dtype(self._trt, self._dtype),
        )
        if layer is not None and one:
            layer.axis = 0
        return self._reshape(self._add(layer, f"{name}.dequantized"), (1, *scales.shape[:-1], -1))

    def _constant(self, name: str, values: torch.Tensor, shape: Sequence[int]) -> TrtTensor:
        """A constant seen in another shape; equal memory is stored once in the plan."""
        seen = values.contiguous().view(tuple(shape))
        return self._add_constant(name, seen, tuple(seen.shape), trt_dtype(self._trt, seen.dtype))

    def _small_constant(self, name: str, values: torch.Tensor) -> TrtTensor:
        """Values of a quantised matrix [rows, ...]; for TensorRT too the lower half of a byte comes first."""
        rows, columns = values.shape
        if values.dtype is torch.uint8:
            return self._add_constant(name, values.contiguous(), (rows, 2 * columns), self._trt.int4)
        return self._constant(name, values, (rows, columns))

    def _add_constant(self, name: str, values: torch.Tensor, shape: tuple[int, ...], kind: Any) -> TrtTensor:
        while name in self.constants:
            name = f"{name}.again"
        self.constants[name] = values
        weights = self._trt.Weights(kind, values.data_ptr(), math.prod(shape))
        return self._add(self._network.add_constant(shape, weights), name)

    def _times(self, x: TrtTensor, factor: float, name: str) -> TrtTensor:
        """x * factor, in x's type."""
        wanted = torch.float32 if x.dtype == self._trt.float32 else self._dtype
        constant = self._constant(name, torch.full((1,), factor, dtype=wanted), (1,) * len(x.shape))
        return self._elementwise(x, constant, self._trt.ElementWiseOperation.PROD)

    def _multiply(self, x: TrtTensor, matrix: TrtTensor, name: str) -> TrtTensor:
        """x @ matrix.T."""
        operation = self._trt.MatrixOperation
        return self._add(self._network.add_matrix_multiply(x, operation.NONE, matrix, operation.TRANSPOSE), name)

    def _reshape(self, x: TrtTensor, shape: Sequence[int]) -> TrtTensor:
        """0 keeps the dimension at its place, -1 is what is left."""
        layer = self._network.add_shuffle(x)
        layer.reshape_dims = tuple(shape)
        return self._add(layer, "reshape")

    def _softmax(self, x: TrtTensor, axis: int) -> TrtTensor:
        layer = self._network.add_softmax(x)
        layer.axes = 1 << axis
        return self._add(layer, "softmax")

    def _reduce(self, x: TrtTensor, operation: Any, axis: int) -> TrtTensor:
        """The dimension stays, with size 1."""
        return self._add(self._network.add_reduce(x, operation, 1 << axis, True), "reduce")

    def _activation(self, x: TrtTensor, kind: Any) -> TrtTensor:
        return self._add(self._network.add_activation(x, kind), "activation")

    def _cast(self, x: TrtTensor, dtype: torch.dtype) -> TrtTensor:
        wanted = trt_dtype(self._trt, dtype)
        return x if x.dtype == wanted else self._add(self._network.add_cast(x, wanted), "cast")

    def _elementwise(self, x: TrtTensor, y: TrtTensor, operation: Any) -> TrtTensor:
        return self._add(self._network.add_elementwise(x, y, operation), "elementwise")

    def _unary(self, x: TrtTensor, operation: Any) -> TrtTensor:
        return self._add(self._network.add_unary(x, operation), "unary")

    def _add(self, layer: Any, name: str) -> TrtTensor:
        """The first output of a layer; TensorRT answers with None instead of an exception if it refuses one."""
        if layer is None:
            raise Failure(ExitCode.BUILDER_ERROR, f"TensorRT refused the layer {name!r} of the network")
        layer.name = f"{self._network.num_layers}:{name}" if not isinstance(layer, self._trt.IConstantLayer) else name
        return layer.get_output(0)


def define_network(
    trt: ModuleType,
    network: TrtNetwork,
    config: DecoderConfig,
    weights: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
    max_seq_len: int,
    ops: type[TensorRtOps] = TensorRtOps,
    rank: Rank = WHOLE,
) -> TensorRtOps:
    """Fill an empty network with a rank's part of the decoder; returns what must be kept until the engine is built.

    Inputs are those of `INPUTS` that are needed, past_key_<i> and past_value_<i> for each layer of the stage, and after
    the first stage hidden_in [B, S, D]. Outputs are present_key_<i>, present_value_<i>, and on the last stage logits
    (float32 [B, 1, V]), on the others hidden_out [B, S, D].
    """
    layers = ops(trt, network, config, weights, dtype, max_seq_len, rank)
    if rank.is_first_stage:
        x = layers.input("input_ids")
    else:
        x = network.add_input("hidden_in", trt_dtype(trt, dtype), (-1, -1, config.hidden_size))
    result = decoder(layers, config, rank, x, lambda: layers.input("last_token_ids"))
    result.name = "logits" if rank.is_last_stage else "hidden_out"
    network.mark_output(result)
    return layers


def trt_dtype(trt: ModuleType, dtype: torch.dtype) -> Any:
    names = {
        torch.float32: "float32",
        torch.float16: "float16",
        torch.bfloat16: "bfloat16",
        torch.int8: "int8",
        torch.float8_e4m3fn: "fp8",
        torch.int32: "int32",
        torch.int64: "int64",
    }
    return getattr(trt, names[dtype])
