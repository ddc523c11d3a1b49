"""Quantising by rounding to the nearest value: no data is needed, and a rank can do its part by itself."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from trtllm_engine.network.quantized import pack
from trtllm_engine.network.scheme import Number, Scheme

BLOCK: Final = 1 << 22
"""Elements that are rounded at once: what is in anonymous memory meanwhile is a few times that."""


def round_into(values: Tensor, scales: Tensor, weight: Tensor, scheme: Scheme) -> None:
    """Fill values [out, ...] and scales [out, groups] for a matrix [out, in] of any floating type.

    The largest number of a group becomes the largest value. Scales are rounded to their type first, and the numbers by
    what that leaves. A group of zeros has the scale 1.
    """
    columns = weight.shape[1]
    rows = max(1, BLOCK // columns)
    for start in range(0, len(weight), rows):
        here = slice(start, start + rows)
        block = weight[here].float()
        groups = block.reshape(len(block), -1, scheme.group_of(columns))
        scale = (groups.abs().amax(dim=-1) / scheme.largest).to(scales.dtype)
        scale[scale == 0] = 1.0
        scaled = groups * scale.float().reciprocal().unsqueeze(-1)
        values[here] = _nearest(scaled.flatten(1), scheme)
        scales[here] = scale


def _nearest(scaled: Tensor, scheme: Scheme) -> Tensor:
    if scheme.number is Number.FP8:
        return scaled.clamp(-scheme.largest, scheme.largest).to(torch.float8_e4m3fn)
    whole = scaled.round().clamp(-scheme.largest - 1, scheme.largest).to(torch.int8)
    return pack(whole) if scheme.number is Number.INT4 else whole
