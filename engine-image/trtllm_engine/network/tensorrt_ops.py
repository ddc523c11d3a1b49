"""The decoder's operations as layers of a TensorRT network.

Written against the layer API that TensorRT 11 and TensorRT for RTX 1.7 share; which of them is used is the module that
is passed in. Networks are strongly typed: operands of a layer have equal types and equal ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.decoder import decoder
from trtllm_engine.network.rope import rope_tables

TrtTensor = Any
"""An ITensor; TensorRT's Python package carries no types."""
TrtNetwork = Any
"""An INetworkDefinition."""


@dataclass(frozen=True, slots=True)
class NetworkInputs:
    """The inputs that every step has; the caches come on top, one pair for each layer."""

    input_ids: TrtTensor
    """int32 [B, S]."""
    position_ids: TrtTensor
    """int64 [B, S]: which rows of the rotary tables to use."""
    write_indices: TrtTensor
    """int32 [B]: cache position of each row's first token."""
    kv_lengths: TrtTensor
    """int32 [B]: write_indices + S, padding included; with the lower-right causal mask it means "key position is at
    most query position", for prefill, chunks, decoding and right-padded batches alike."""
    last_token_ids: TrtTensor
    """int32 [B]: which of the S tokens to compute logits for."""


class TensorRtOps:
    """Adds one layer or a few for each operation.

    `weights` are named as in the checkpoint, in the type of the network; TensorRT keeps only pointers to them, so they
    and `constants` must live until the engine is built. Constant layers are named after what they hold.
    """

    def __init__(
        self,
        trt: ModuleType,
        network: TrtNetwork,
        config: DecoderConfig,
        weights: Mapping[str, torch.Tensor],
        dtype: torch.dtype,
        inputs: NetworkInputs,
        max_seq_len: int,
    ) -> None:
        self._trt = trt
        self._network = network
        self._config = config
        self._weights = weights
        self._dtype = dtype
        self._inputs = inputs
        self._max_seq_len = max_seq_len
        self.constants: dict[str, torch.Tensor] = {}
        """Every constant by its layer's name, as TensorRT sees it."""
        cosines, sines = rope_tables(config, max_seq_len)
        self._cosines = self._constant("rope.cosines", cosines.to(dtype), cosines.shape)
        self._sines = self._constant("rope.sines", sines.to(dtype), sines.shape)

    def embed(self, ids: TrtTensor, table: str) -> TrtTensor:
        rows = self._constant(f"{table}.rows", self._weight(table), self._weight(table).shape)
        return self._add(self._network.add_gather(rows, ids, 0), table)

    def linear(self, x: TrtTensor, weight: str, bias: str | None) -> TrtTensor:
        matrix = self._constant(weight, self._weight(weight), (1, *self._weight(weight).shape))
        operation = self._trt.MatrixOperation
        product = self._add(
            self._network.add_matrix_multiply(x, operation.NONE, matrix, operation.TRANSPOSE), f"{weight}.product"
        )
        return product if bias is None else self.add(product, self._constant(bias, self._weight(bias), (1, 1, -1)))

    def rms_norm(self, x: TrtTensor, weight: str, eps: float) -> TrtTensor:
        """Composed by hand: add_normalization subtracts the mean."""
        operation, unary = self._trt.ElementWiseOperation, self._trt.UnaryOperation
        wide = self._cast(x, torch.float32)
        square = self._elementwise(wide, wide, operation.PROD)
        mean = self._add(
            self._network.add_reduce(square, self._trt.ReduceOperation.AVG, 1 << 2, True), f"{weight}.mean"
        )
        epsilon = self._constant(f"{weight}.eps", torch.full((1,), eps), (1, 1, 1))
        root = self._unary(self._elementwise(mean, epsilon, operation.SUM), unary.SQRT)
        normal = self._elementwise(wide, self._unary(root, unary.RECIP), operation.PROD)
        scale = self._constant(weight, self._weight(weight), (1, 1, -1))
        return self._elementwise(self._cast(normal, self._dtype), scale, operation.PROD)

    def split_heads(self, x: TrtTensor, heads: int, head_dim: int) -> TrtTensor:
        layer = self._network.add_shuffle(x)
        layer.reshape_dims = (0, 0, heads, head_dim)
        layer.second_transpose = (0, 2, 1, 3)
        return self._add(layer, "split_heads")

    def merge_heads(self, x: TrtTensor) -> TrtTensor:
        layer = self._network.add_shuffle(x)
        layer.first_transpose = (0, 2, 1, 3)
        layer.reshape_dims = (0, 0, self._config.num_heads * self._config.head_dim)
        return self._add(layer, "merge_heads")

    def rotate(self, x: TrtTensor) -> TrtTensor:
        layer = self._network.add_rotary_embedding(x, self._cosines, self._sines, False, 0)
        layer.set_input(3, self._inputs.position_ids)
        return self._add(layer, "rotate")

    def attend(self, layer: int, query: TrtTensor, key: TrtTensor, value: TrtTensor, scale: float) -> TrtTensor:
        keys = self.update_cache(f"key_{layer}", key)
        values = self.update_cache(f"value_{layer}", value)
        factor = self._constant(f"attention.scale.{layer}", torch.full((1,), scale, dtype=self._dtype), (1, 1, 1, 1))
        scaled = self._elementwise(query, factor, self._trt.ElementWiseOperation.PROD)
        attention = self._network.add_attention_v2(
            scaled, keys, values, self._trt.AttentionNormalizationOp.SOFTMAX, self._trt.CausalMaskKind.LOWER_RIGHT
        )
        attention.key_value_lengths = self._inputs.kv_lengths
        # Without it a type or head size that has no fused kernel fails the build.
        attention.decomposable = True
        return self._add(attention, f"attention.{layer}")

    def update_cache(self, name: str, update: TrtTensor) -> TrtTensor:
        """Input past_<name> and output present_<name> [B, Nkv, S_max, H]; at run time both are the same memory."""
        shape = (-1, self._config.num_kv_heads, self._max_seq_len, self._config.head_dim)
        cache = self._network.add_input(f"past_{name}", trt_dtype(self._trt, self._dtype), shape)
        layer = self._network.add_kv_cache_update(
            cache, update, self._inputs.write_indices, self._trt.KVCacheMode.LINEAR
        )
        present = self._add(layer, f"cache.{name}")
        present.name = f"present_{name}"
        self._network.mark_output(present)
        return present

    def add(self, x: TrtTensor, y: TrtTensor) -> TrtTensor:
        return self._elementwise(x, y, self._trt.ElementWiseOperation.SUM)

    def gated_silu(self, gate: TrtTensor, up: TrtTensor) -> TrtTensor:
        product = self._trt.ElementWiseOperation.PROD
        sigmoid = self._add(self._network.add_activation(gate, self._trt.ActivationType.SIGMOID), "sigmoid")
        return self._elementwise(self._elementwise(gate, sigmoid, product), up, product)

    def pick(self, x: TrtTensor, index: TrtTensor) -> TrtTensor:
        column = self._network.add_shuffle(index)
        column.reshape_dims = (0, 1)
        layer = self._network.add_gather_v2(x, self._add(column, "pick.index"), self._trt.GatherMode.DEFAULT)
        layer.axis = 1
        layer.num_elementwise_dims = 1
        return self._add(layer, "pick")

    def float32(self, x: TrtTensor) -> TrtTensor:
        return self._cast(x, torch.float32)

    def _weight(self, name: str) -> torch.Tensor:
        return self._weights[name]

    def _constant(self, name: str, values: torch.Tensor, shape: Sequence[int]) -> TrtTensor:
        """A constant seen in another shape; equal memory is stored once in the plan."""
        seen = values.contiguous().view(*shape)
        if name in self.constants:
            name = f"{name}.again"
        self.constants[name] = seen
        weights = self._trt.Weights(trt_dtype(self._trt, seen.dtype), seen.data_ptr(), seen.numel())
        return self._add(self._network.add_constant(tuple(seen.shape), weights), name)

    def _cast(self, x: TrtTensor, dtype: torch.dtype) -> TrtTensor:
        wanted = trt_dtype(self._trt, dtype)
        return x if x.dtype == wanted else self._add(self._network.add_cast(x, wanted), "cast")

    def _elementwise(self, x: TrtTensor, y: TrtTensor, operation: Any) -> TrtTensor:
        return self._add(self._network.add_elementwise(x, y, operation), "elementwise")

    def _unary(self, x: TrtTensor, operation: Any) -> TrtTensor:
        return self._add(self._network.add_unary(x, operation), "unary")

    def _add(self, layer: Any, name: str) -> TrtTensor:
        """The only output of a layer; TensorRT answers with None instead of an exception if it refuses one."""
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
) -> TensorRtOps:
    """Fill an empty network with the decoder; returns what must be kept until the engine is built.

    Inputs are those of `NetworkInputs` and past_key_<i>, past_value_<i>; outputs are logits (float32 [B, 1, V]) and
    present_key_<i>, present_value_<i>.
    """
    inputs = NetworkInputs(
        input_ids=network.add_input("input_ids", trt.int32, (-1, -1)),
        position_ids=network.add_input("position_ids", trt.int64, (-1, -1)),
        write_indices=network.add_input("write_indices", trt.int32, (-1,)),
        kv_lengths=network.add_input("kv_lengths", trt.int32, (-1,)),
        last_token_ids=network.add_input("last_token_ids", trt.int32, (-1,)),
    )
    layers = ops(trt, network, config, weights, dtype, inputs, max_seq_len)
    logits = decoder(layers, config, inputs.input_ids, inputs.last_token_ids)
    logits.name = "logits"
    network.mark_output(logits)
    return layers


def trt_dtype(trt: ModuleType, dtype: torch.dtype) -> Any:
    names = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
    return getattr(trt, names[dtype])
