"""Quantised matrices of a checkpoint, brought into the form that engines have."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from trtllm_engine.checkpoint.stored_scheme import WORD_BITS, Packing, StoredScheme, prefix_of
from trtllm_engine.checkpoint.tensor_files import TensorFiles
from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.families import Place
from trtllm_engine.network.quantized import pack
from trtllm_engine.network.scheme import Number

BLOCK: Final = 1 << 22
"""Elements that are unpacked at once."""


def unpack_into(
    values: Tensor, scales: Tensor, files: TensorFiles, place: Place, part: tuple[range, ...], stored: StoredScheme
) -> None:
    """Fill values [out, ...] and scales [out, groups] with a part (rows, columns) of the matrix at a place.

    Values are what they were; scales are converted. Columns are whole groups where a row has more than one. Raises
    UNSUPPORTED naming the tensor where values have zero points, groups are not of neighbours, or words would be split.
    """
    rows, columns = part
    if columns.start % stored.per_word or columns.stop % stored.per_word:
        raise _unsupported(place.tensor, f"a rank's columns split a word of {stored.per_word}; use another mapping")
    if stored.packing is Packing.GPTQ:
        _check_gptq(files, place, stored)
    scheme = stored.scheme
    words = range(columns.start // stored.per_word, columns.stop // stored.per_word)
    group = scheme.group_of(place.shape[1])
    groups = range(columns.start // group, -(-columns.stop // group))
    scales.copy_(_scales(files, place, rows, groups, stored))
    block = max(1, BLOCK // len(columns))
    for start in range(0, len(rows), block):
        here = rows[start : start + block]
        whole = _unpacked(_words(files, place, here, words, stored), scheme.bits)
        values[start : start + block] = pack(whole) if scheme.number is Number.INT4 else whole


def _scales(files: TensorFiles, place: Place, rows: range, groups: range, stored: StoredScheme) -> Tensor:
    prefix = prefix_of(place)
    if stored.packing is Packing.GPTQ:
        return files.slice(f"{prefix}.scales", groups, rows).T
    return files.slice(f"{prefix}.weight_scale", rows, groups)


def _words(files: TensorFiles, place: Place, rows: range, words: range, stored: StoredScheme) -> Tensor:
    """int32 [rows, words]."""
    prefix = prefix_of(place)
    if stored.packing is Packing.GPTQ:
        return files.slice(f"{prefix}.qweight", words, rows).T
    return files.slice(f"{prefix}.weight_packed", rows, words)


def _unpacked(words: Tensor, bits: int) -> Tensor:
    """int8 [rows, words * n], without what was added."""
    shifts = torch.arange(0, WORD_BITS, bits, dtype=torch.int32)
    shifted = words.unsqueeze(-1) >> shifts & (1 << bits) - 1
    return (shifted - (1 << bits - 1)).to(torch.int8).flatten(1)


def _check_gptq(files: TensorFiles, place: Place, stored: StoredScheme) -> None:
    prefix, bits = prefix_of(place), stored.scheme.bits
    zeros = _unpacked(files.slice(f"{prefix}.qzeros"), bits)
    if not bool((zeros == stored.zero - (1 << bits - 1)).all()):
        raise _unsupported(
            f"{prefix}.qzeros", "values have zero points, for which engines have no place; give the model unquantised"
        )
    if (name := f"{prefix}.g_idx") in files:
        columns = place.shape[1]
        neighbours = torch.arange(columns) // stored.scheme.group_of(columns)
        if not torch.equal(files.slice(name).long(), neighbours):
            raise _unsupported(name, "the columns of a group are not neighbours (desc_act); give the model unquantised")


def _unsupported(tensor: str, message: str) -> Failure:
    return Failure(ExitCode.UNSUPPORTED, f"tensor {tensor}: {message}", field="model")
