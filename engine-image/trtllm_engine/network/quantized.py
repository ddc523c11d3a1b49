"""Matrices that are kept as small values and scales, until they are multiplied."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from trtllm_engine.network.parameters import MATRICES, Parameter, Shape
from trtllm_engine.network.scheme import Number, Scheme

VALUES: Final = ".values"
SCALES: Final = ".scales"
"""What follows the name of a weight in place of which there are values and scales."""
INPUT_SCALE: Final = ".input_scale"
"""What follows it where what the weight multiplies is quantised too."""

STORED: Final = {Number.INT8: torch.int8, Number.INT4: torch.uint8, Number.FP8: torch.float8_e4m3fn}
"""Type of the values; a byte holds two of 4 bits, of an even column in its lower half and of the next in its upper."""


def stored_tensors(
    parameter: Parameter, dtype: torch.dtype, scheme: Scheme | None
) -> dict[str, tuple[torch.dtype, Shape]]:
    """Type and shape of what is kept for a weight, by name: itself, or values, scales, and its input's scale."""
    if scheme is None or parameter.role not in MATRICES:
        return {parameter.name: (dtype, parameter.shape)}
    matrix = {
        parameter.name + VALUES: (STORED[scheme.number], scheme.values_shape(parameter.shape)),
        parameter.name + SCALES: (dtype, scheme.scales_shape(parameter.shape)),
    }
    return matrix | {parameter.name + INPUT_SCALE: (dtype, (1,))} if scheme.activations else matrix


def dequantize(values: Tensor, scales: Tensor) -> Tensor:
    """[..., out, in] in the type of the scales [..., out, groups]: each product is rounded once."""
    whole = unpack(values) if values.dtype is torch.uint8 else values
    groups = whole.reshape(*scales.shape, -1)
    return (groups.to(scales.dtype) * scales.unsqueeze(-1)).flatten(-2)


def nearest(x: Tensor, scale: Tensor, kind: torch.dtype) -> Tensor:
    """x / scale as the nearest int8 or float8_e4m3fn, ties to even; what is beyond the largest becomes it."""
    scaled = x.float() / scale.float()
    if kind is torch.int8:
        return scaled.round().clamp(-128, 127).to(kind)
    largest = torch.finfo(kind).max
    return scaled.clamp(-largest, largest).to(kind)


def pack(values: Tensor) -> Tensor:
    """int8 from -8 to 7 [..., in] -> uint8 [..., in / 2]."""
    halves = values.view(torch.uint8) & 0xF
    return halves[..., 0::2] | halves[..., 1::2] << 4


def unpack(packed: Tensor) -> Tensor:
    """What `pack` was given."""
    signed = packed.view(torch.int8)
    # A shift of a signed integer keeps its sign.
    return torch.stack((signed << 4 >> 4, signed >> 4), dim=-1).flatten(-2)
