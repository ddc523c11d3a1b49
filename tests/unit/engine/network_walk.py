"""A double of TensorRT's runtime: walks the layers of a real INetworkDefinition and computes them with torch.

It encodes what the layers mean according to NVIDIA's documentation, so it proves the network, not TensorRT's kernels.
Every output is compared with the type and the shape that TensorRT inferred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Step:
    """One layer; every layer of a decoder has one output."""

    layer: Any
    inputs: list[str]
    output: Any


class NetworkWalk:
    """Runs a network; `constants` are the tensors behind its constant layers, by layer name."""

    def __init__(self, trt: ModuleType, network: Any, constants: Mapping[str, Tensor]) -> None:
        self._trt = trt
        self._constants = constants
        self._inputs = {network.get_input(i).name for i in range(network.num_inputs)}
        self._outputs = [network.get_output(i).name for i in range(network.num_outputs)]
        layers = [_typed(trt, network.get_layer(index)) for index in range(network.num_layers)]
        self._steps = _in_order(
            [Step(layer, _input_names(layer), layer.get_output(0)) for layer in layers], self._inputs
        )

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The network's outputs."""
        assert set(inputs) == self._inputs
        values: dict[str, Tensor] = dict(inputs)
        for step in self._steps:
            result = self._compute(step.layer, [values[name] for name in step.inputs])
            self._compare(step.layer.name, step.output, result)
            values[step.output.name] = result
        return {name: values[name] for name in self._outputs}

    def _compute(self, layer: Any, x: list[Tensor]) -> Tensor:
        handler: Callable[[Any, list[Tensor]], Tensor] = getattr(self, "_" + type(layer).__name__)
        return handler(layer, x)

    def _compare(self, name: str, output: Any, result: Tensor) -> None:
        assert _torch_dtype(self._trt, output.dtype) == result.dtype, name
        inferred = tuple(output.shape)
        assert len(inferred) == result.dim(), name
        assert all(size in (-1, found) for size, found in zip(inferred, result.shape, strict=True)), (
            name,
            inferred,
            result.shape,
        )

    def _IConstantLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        return self._constants[layer.name]

    def _IGatherLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        data, index = x[0], x[1].long()
        if layer.num_elementwise_dims == 0:
            assert layer.axis == 0
            return data[index]
        assert (layer.num_elementwise_dims, layer.axis) == (1, 1)
        return torch.stack([row[choice] for row, choice in zip(data, index, strict=True)])

    def _IShuffleLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        first = x[0].permute(_dims(layer.first_transpose, x[0].dim()))
        shape = [first.shape[i] if size == 0 else size for i, size in enumerate(layer.reshape_dims)]
        reshaped = first.reshape(shape)
        return reshaped.permute(_dims(layer.second_transpose, reshaped.dim()))

    def _IElementWiseLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        assert x[0].dtype == x[1].dtype and x[0].dim() == x[1].dim()
        operation = self._trt.ElementWiseOperation
        if layer.op == operation.SUM:
            return x[0] + x[1]
        assert layer.op == operation.PROD
        return x[0] * x[1]

    def _IUnaryLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        operation = self._trt.UnaryOperation
        if layer.op == operation.SQRT:
            return x[0].sqrt()
        assert layer.op == operation.RECIP
        return x[0].reciprocal()

    def _IActivationLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        assert layer.type == self._trt.ActivationType.SIGMOID
        return x[0].sigmoid()

    def _IReduceLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        assert layer.op == self._trt.ReduceOperation.AVG and layer.keep_dims
        return x[0].mean(dim=[axis for axis in range(x[0].dim()) if layer.axes >> axis & 1], keepdim=True)

    def _ICastLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        return x[0].to(_torch_dtype(self._trt, layer.to_type))

    def _IMatrixMultiplyLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        operation = self._trt.MatrixOperation
        left, right = (
            t.mT if op == operation.TRANSPOSE else t for t, op in zip(x, (layer.op0, layer.op1), strict=True)
        )
        return torch.matmul(left, right)

    def _IRotaryEmbeddingLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        data, cosines, sines, positions = x
        assert not layer.interleaved and layer.rotary_embedding_dim == 0
        cos, sin = cosines[positions].unsqueeze(1), sines[positions].unsqueeze(1)
        first, second = data.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)

    def _IKVCacheUpdateLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        """Out-of-range writes are dropped."""
        assert layer.cache_mode == self._trt.KVCacheMode.LINEAR
        cache, update, indices = x[0].clone(), x[1], x[2].tolist()
        for row, start in enumerate(indices):
            fits = min(update.shape[2], cache.shape[2] - start)
            cache[row, :, start : start + fits] = update[row, :, :fits]
        return cache

    def _IAttentionInputLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        """Not scaled: that is the network's business. Masked keys include those beyond `key_value_lengths`."""
        attention = layer.attention
        assert attention.decomposable and attention.norm_op == self._trt.AttentionNormalizationOp.SOFTMAX
        query, key, value, lengths = x[0], x[1], x[2], x[3]
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        columns, rows = torch.arange(key.shape[2]), torch.arange(query.shape[2])
        kinds = self._trt.CausalMaskKind
        visible = columns[None, None, :] < lengths[:, None, None]
        if attention.causal_kind == kinds.LOWER_RIGHT:
            visible = visible & (
                columns[None, None, :] <= rows[None, :, None] + lengths[:, None, None] - query.shape[2]
            )
        else:
            assert attention.causal_kind == kinds.NONE
        scores = torch.matmul(query, key.mT).masked_fill(~visible[:, None], -math.inf)
        return torch.matmul(functional.softmax(scores.float(), dim=-1).to(query.dtype), value)

    def _IAttentionOutputLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        return x[0]


class WalkedDecoder:
    """A network's decoder with its caches, called like `TorchDecoder` without slots."""

    def __init__(
        self,
        trt: ModuleType,
        network: Any,
        constants: Mapping[str, Tensor],
        *,
        batch: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._walk = NetworkWalk(trt, network, constants)
        self._caches: dict[str, Tensor] = {}
        for index in range(network.num_inputs):
            tensor = network.get_input(index)
            if tensor.name.startswith("past_"):
                self._caches[tensor.name] = torch.zeros((batch, *tuple(tensor.shape)[1:]), dtype=dtype)

    def forward(self, input_ids: Tensor, position_ids: Tensor, write_indices: Tensor, last_token_ids: Tensor) -> Tensor:
        """float32 [B, V]; what the network writes is the next step's cache, as if bound in place."""
        outputs = self._walk.run(
            {
                "input_ids": input_ids.int(),
                "position_ids": position_ids.long(),
                "write_indices": write_indices.int(),
                "kv_lengths": (write_indices + input_ids.shape[1]).int(),
                "last_token_ids": last_token_ids.int(),
                **self._caches,
            }
        )
        self._caches = {name: outputs["present" + name.removeprefix("past")] for name in self._caches}
        return outputs["logits"].squeeze(1)


def _in_order(steps: list[Step], known: set[str]) -> list[Step]:
    """Each step after those whose outputs it takes: the network lists them in order of insertion."""
    available, ordered, waiting = set(known), list[Step](), steps
    while waiting:
        later: list[Step] = []
        for step in waiting:
            if all(name in available for name in step.inputs):
                ordered.append(step)
                available.add(step.output.name)
            else:
                later.append(step)
        assert len(later) < len(waiting), f"layers without inputs: {[step.layer.name for step in later][:3]}"
        waiting = later
    return ordered


def _typed(trt: ModuleType, layer: Any) -> Any:
    """`get_layer` returns the base class; the bindings allow it to be told its own."""
    classes = {
        trt.LayerType.CONSTANT: trt.IConstantLayer,
        trt.LayerType.GATHER: trt.IGatherLayer,
        trt.LayerType.SHUFFLE: trt.IShuffleLayer,
        trt.LayerType.ELEMENTWISE: trt.IElementWiseLayer,
        trt.LayerType.UNARY: trt.IUnaryLayer,
        trt.LayerType.ACTIVATION: trt.IActivationLayer,
        trt.LayerType.REDUCE: trt.IReduceLayer,
        trt.LayerType.CAST: trt.ICastLayer,
        trt.LayerType.MATRIX_MULTIPLY: trt.IMatrixMultiplyLayer,
        trt.LayerType.ROTARY_EMBEDDING: trt.IRotaryEmbeddingLayer,
        trt.LayerType.KV_CACHE_UPDATE: trt.IKVCacheUpdateLayer,
        trt.LayerType.ATTENTION_INPUT: trt.IAttentionInputLayer,
        trt.LayerType.ATTENTION_OUTPUT: trt.IAttentionOutputLayer,
    }
    layer.__class__ = classes[layer.type]
    return layer


def _input_names(layer: Any) -> list[str]:
    inputs = (layer.get_input(index) for index in range(layer.num_inputs))
    return [tensor.name for tensor in inputs if tensor is not None]


def _dims(permutation: Any, count: int) -> list[int]:
    return [permutation[axis] for axis in range(count)]


def _torch_dtype(trt: ModuleType, dtype: Any) -> torch.dtype:
    return {
        trt.float32: torch.float32,
        trt.float16: torch.float16,
        trt.bfloat16: torch.bfloat16,
        trt.int32: torch.int32,
        trt.int64: torch.int64,
    }[dtype]
