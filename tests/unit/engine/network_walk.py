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

from trtllm_engine.network.collectives import Alone, Collectives
from trtllm_engine.network.rank import WHOLE, Rank


@dataclass(frozen=True, slots=True)
class Step:
    """One layer."""

    layer: Any
    inputs: list[str]
    outputs: list[Any]


class NetworkWalk:
    """Runs a network; `constants` are the tensors behind its constant layers, by layer name.

    `collectives` are those of the rank that the network is for.
    """

    def __init__(
        self, trt: ModuleType, network: Any, constants: Mapping[str, Tensor], collectives: Collectives | None = None
    ) -> None:
        self._trt = trt
        self._constants = constants
        self._collectives = collectives or Alone()
        self._inputs = {network.get_input(i).name for i in range(network.num_inputs)}
        self._outputs = [network.get_output(i).name for i in range(network.num_outputs)]
        layers = [_typed(trt, network.get_layer(index)) for index in range(network.num_layers)]
        self._steps = _in_order(
            [
                Step(layer, _input_names(layer), [layer.get_output(index) for index in range(layer.num_outputs)])
                for layer in layers
            ],
            self._inputs,
        )

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The network's outputs; of `inputs` it takes what it has."""
        values: dict[str, Tensor] = {name: inputs[name] for name in self._inputs}
        for step in self._steps:
            result = self._compute(step.layer, [values[name] for name in step.inputs])
            for output, value in zip(step.outputs, result, strict=True):
                self._compare(step.layer.name, output, value)
                values[output.name] = value
        return {name: values[name] for name in self._outputs}

    def _compute(self, layer: Any, x: list[Tensor]) -> tuple[Tensor, ...]:
        handler: Callable[[Any, list[Tensor]], Tensor | tuple[Tensor, ...]] = getattr(self, "_" + type(layer).__name__)
        result = handler(layer, x)
        return result if isinstance(result, tuple) else (result,)

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
        """Of 4-bit integers a byte holds two, the lower half first."""
        stored = self._constants[layer.name]
        if layer.get_output(0).dtype != self._trt.int4:
            return stored
        halves = torch.stack((stored % 16, stored // 16), dim=-1).flatten(-2).to(torch.int8)
        return torch.where(halves < 8, halves, halves - 16)

    def _IDequantizeLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        """One scale, or one for each row or block of a row; the product is rounded to the type of the scale."""
        values, scales = x
        if scales.dim() == 0:
            return values.to(scales.dtype) * scales
        if scales.dim() == 1:
            assert layer.axis == 0
            return values.to(scales.dtype) * scales[:, None]
        block = values.shape[1] // scales.shape[1]
        return values.to(scales.dtype) * scales.repeat_interleave(block, dim=1)

    def _IQuantizeLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        """Divided by the scale, to the nearest value, ties to even; what no value reaches becomes the outermost."""
        data, scale = x
        assert scale.dim() == 0 and data.dtype == scale.dtype
        kind = _torch_dtype(self._trt, layer.get_output(0).dtype)
        if kind is torch.int8:
            return torch.clamp(torch.round(data / scale), -128, 127).to(kind)
        assert kind is torch.float8_e4m3fn
        return torch.clamp(data / scale, -448, 448).to(kind)

    def _IGatherLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        data, index = x[0], x[1].long()
        if layer.num_elementwise_dims == 0:
            assert layer.axis == 0
            return data[index]
        assert (layer.num_elementwise_dims, layer.axis) == (1, 1)
        return torch.stack([row[choice] for row, choice in zip(data, index, strict=True)])

    def _IShuffleLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        first = x[0].permute(_dims(layer.first_transpose, x[0].dim()))
        if (dims := layer.reshape_dims) is None:
            return first.permute(_dims(layer.second_transpose, first.dim()))
        shape = [first.shape[i] if size == 0 else size for i, size in enumerate(dims)]
        reshaped = first.reshape(shape)
        return reshaped.permute(_dims(layer.second_transpose, reshaped.dim()))

    def _IElementWiseLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        assert x[0].dtype == x[1].dtype and x[0].dim() == x[1].dim()
        operation = self._trt.ElementWiseOperation
        computed: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {
            operation.SUM: torch.add,
            operation.SUB: torch.sub,
            operation.PROD: torch.mul,
            operation.DIV: torch.div,
            operation.MIN: torch.minimum,
            operation.MAX: torch.maximum,
            operation.EQUAL: torch.eq,
            operation.LESS: torch.lt,
            operation.GREATER: torch.gt,
            operation.AND: torch.logical_and,
        }
        return computed[layer.op](x[0], x[1])

    def _IUnaryLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        operation = self._trt.UnaryOperation
        if layer.op == operation.SQRT:
            return x[0].sqrt()
        assert layer.op == operation.RECIP
        return x[0].reciprocal()

    def _IActivationLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        kinds = self._trt.ActivationType
        if layer.type == kinds.GELU_TANH:
            return functional.gelu(x[0], approximate="tanh")
        if layer.type == kinds.TANH:
            return x[0].tanh()
        assert layer.type == kinds.SIGMOID
        return x[0].sigmoid()

    def _IReduceLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        assert layer.keep_dims
        axes = [axis for axis in range(x[0].dim()) if layer.axes >> axis & 1]
        if layer.op == self._trt.ReduceOperation.SUM:
            return x[0].sum(dim=axes, keepdim=True)
        assert layer.op == self._trt.ReduceOperation.AVG
        return x[0].mean(dim=axes, keepdim=True)

    def _ISoftMaxLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        (axis,) = [axis for axis in range(x[0].dim()) if layer.axes >> axis & 1]
        return x[0].softmax(dim=axis)

    def _ITopKLayer(self, layer: Any, x: list[Tensor]) -> tuple[Tensor, Tensor]:
        assert layer.op == self._trt.TopKOperation.MAX
        (axis,) = [axis for axis in range(x[0].dim()) if layer.axes >> axis & 1]
        values, indices = x[0].topk(layer.k, dim=axis)
        return values, indices.int()

    def _ISelectLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        return torch.where(x[0], x[1], x[2])

    def _IDistCollectiveLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        """The bindings do not tell the operation: a gathered dimension, the first, is longer than it was."""
        before, after = layer.get_input(0).shape[0], layer.get_output(0).shape[0]
        if after == before:
            return self._collectives.all_reduce(x[0])
        assert after == before * layer.num_ranks
        return self._collectives.all_gather(x[0].movedim(0, -1)).movedim(-1, 0)

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
        assert not layer.interleaved
        cos, sin = cosines[positions].unsqueeze(1), sines[positions].unsqueeze(1)
        turned, kept = data[..., : layer.rotary_embedding_dim or None], data[..., layer.rotary_embedding_dim or None :]
        first, second = turned.chunk(2, dim=-1)
        parts = (first * cos - second * sin, first * sin + second * cos)
        return torch.cat((*parts, kept) if layer.rotary_embedding_dim else parts, dim=-1)

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
        query, key, value = x[0], x[1], x[2]
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        columns, rows = torch.arange(key.shape[2]), torch.arange(query.shape[2])
        kinds = self._trt.CausalMaskKind
        if attention.mask is not None:
            assert attention.causal_kind == kinds.NONE and attention.key_value_lengths is None
            visible = x[3]
        else:
            lengths = x[3][:, None, None, None]
            visible = columns < lengths
            if attention.causal_kind == kinds.LOWER_RIGHT:
                visible = visible & (columns <= rows[:, None] + lengths - query.shape[2])
            else:
                assert attention.causal_kind == kinds.NONE
        scores = torch.matmul(query, key.mT).masked_fill(~visible, -math.inf)
        return torch.matmul(functional.softmax(scores.float(), dim=-1).to(query.dtype), value)

    def _IAttentionOutputLayer(self, layer: Any, x: list[Tensor]) -> Tensor:
        return x[0]


class WalkedDecoder:
    """A network's part of a decoder with its caches, called like `TorchDecoder` without slots."""

    def __init__(
        self,
        trt: ModuleType,
        network: Any,
        constants: Mapping[str, Tensor],
        *,
        batch: int,
        rank: Rank = WHOLE,
        collectives: Collectives | None = None,
    ) -> None:
        self._rank = rank
        self._collectives = collectives or Alone()
        self._walk = NetworkWalk(trt, network, constants, collectives)
        self._inputs = {tensor.name: tensor for tensor in map(network.get_input, range(network.num_inputs))}
        self._caches = {
            name: torch.zeros((batch, *tuple(tensor.shape)[1:]))
            for name, tensor in self._inputs.items()
            if name.startswith("past_")
        }

    def forward(self, input_ids: Tensor, position_ids: Tensor, write_indices: Tensor, last_token_ids: Tensor) -> Tensor:
        """float32 [B, V]; what the network writes is the next step's cache, as if bound in place."""
        logits = self._step(input_ids, position_ids, write_indices, last_token_ids)
        if self._rank.mapping.pp > 1:
            last = self._rank.mapping.world_size - self._rank.tp_size
            logits = self._collectives.receive((input_ids.shape[0], 1, -1), torch.float32, last)
        return logits.squeeze(1)

    def follow(self, input_ids: Tensor, position_ids: Tensor, write_indices: Tensor, last_token_ids: Tensor) -> None:
        """The other ranks' part of a step."""
        result = self._step(input_ids, position_ids, write_indices, last_token_ids)
        if self._rank.stage > 0 and self._rank.is_last_stage and self._rank.tp_rank == 0:
            self._collectives.send(result, 0)

    def _step(self, input_ids: Tensor, position_ids: Tensor, write_indices: Tensor, last_token_ids: Tensor) -> Tensor:
        inputs = {
            "input_ids": input_ids.int(),
            "position_ids": position_ids.long(),
            "write_indices": write_indices.int(),
            "kv_lengths": (write_indices + input_ids.shape[1]).int(),
            "last_token_ids": last_token_ids.int(),
            **self._caches,
        }
        if not self._rank.is_first_stage:
            shape = (*input_ids.shape, self._inputs["hidden_in"].shape[-1])
            inputs["hidden_in"] = self._collectives.receive(shape, torch.float32, self._rank.previous)
        outputs = self._walk.run(inputs)
        self._caches = {name: outputs["present" + name.removeprefix("past")] for name in self._caches}
        if self._rank.is_last_stage:
            return outputs["logits"]
        self._collectives.send(outputs["hidden_out"], self._rank.next)
        return outputs["hidden_out"]


def _in_order(steps: list[Step], known: set[str]) -> list[Step]:
    """Each step after those whose outputs it takes: the network lists them in order of insertion."""
    available, ordered, waiting = set(known), list[Step](), steps
    while waiting:
        later: list[Step] = []
        for step in waiting:
            if all(name in available for name in step.inputs):
                ordered.append(step)
                available |= {output.name for output in step.outputs}
            else:
                later.append(step)
        assert len(later) < len(waiting), f"layers without inputs: {[step.layer.name for step in later][:3]}"
        waiting = later
    return ordered


def _typed(trt: ModuleType, layer: Any) -> Any:
    """`get_layer` returns the base class; the bindings allow it to be told its own."""
    classes = {
        trt.LayerType.CONSTANT: trt.IConstantLayer,
        trt.LayerType.QUANTIZE: trt.IQuantizeLayer,
        trt.LayerType.DEQUANTIZE: trt.IDequantizeLayer,
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
        trt.LayerType.SOFTMAX: trt.ISoftMaxLayer,
        trt.LayerType.TOPK: trt.ITopKLayer,
        trt.LayerType.SELECT: trt.ISelectLayer,
        trt.LayerType.DIST_COLLECTIVE: trt.IDistCollectiveLayer,
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
        trt.int8: torch.int8,
        trt.int4: torch.int8,
        trt.fp8: torch.float8_e4m3fn,
        trt.bool: torch.bool,
    }[dtype]
