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

AWQ_ORDER: Final = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in a word of AWQ each of its values is."""


def unpack_into(
    values: Tensor, scales: Tensor, files: TensorFiles, place: Place, part: tuple[range, ...], stored: StoredScheme
) -> None:
    """Fill values [out, ...] and scales [out, groups] with a part (rows, columns) of the matrix at a place.

    Values are what they were, less their zero points; scales are converted. Columns are whole groups where a row has
    more than one. Raises UNSUPPORTED naming the tensor where there are zero points that the config denies, groups are
    not of neighbours, or words would be split.
    """
    rows, columns = part
    if stored.packing in (Packing.GPTQ, Packing.COMPRESSED) and (
        columns.start % stored.per_word or columns.stop % stored.per_word
    ):
        raise _unsupported(place.tensor, f"a rank's columns split a word of {stored.per_word}; use another mapping")
    if stored.packing in (Packing.GPTQ, Packing.AWQ):
        _check_zeros_and_order(files, place, stored)
    scheme = stored.scheme
    group = scheme.group_of(place.shape[1])
    groups = range(columns.start // group, -(-columns.stop // group))
    scales.copy_(_scales(files, place, rows, groups, stored))
    block = max(1, BLOCK // len(columns))
    for start in range(0, len(rows), block):
        here = rows[start : start + block]
        whole = _values(files, place, here, columns, groups, stored)
        values[start : start + block] = pack(whole) if scheme.number is Number.INT4 else whole


def input_scale(files: TensorFiles, place: Place) -> Tensor:
    """Of what the matrix at a place multiplies; one number."""
    return files.slice(f"{prefix_of(place)}.input_scale")


def _scales(files: TensorFiles, place: Place, rows: range, groups: range, stored: StoredScheme) -> Tensor:
    """[rows, groups], or one number for all."""
    prefix = prefix_of(place)
    if stored.packing in (Packing.GPTQ, Packing.AWQ):
        return files.slice(f"{prefix}.scales", groups, rows).T
    return files.slice(f"{prefix}.weight_scale", *(() if stored.one_scale else (rows, groups)))


def _values(
    files: TensorFiles, place: Place, rows: range, columns: range, groups: range, stored: StoredScheme
) -> Tensor:
    """[rows, columns], of one byte each."""
    prefix, n = prefix_of(place), stored.per_word
    words = range(columns.start // n, columns.stop // n)
    match stored.packing:
        case Packing.PLAIN:
            return files.slice(place.tensor, rows, columns)
        case Packing.COMPRESSED:
            return _unpacked(files.slice(f"{prefix}.weight_packed", rows, words), stored)
        case Packing.GPTQ:
            signed = _unpacked(files.slice(f"{prefix}.qweight", words, rows).T, stored)
        case Packing.AWQ:
            signed = _unpacked_rows(files, f"{prefix}.qweight", columns, rows, stored)
    if not stored.zero_points:
        return signed
    zeros = _zeros(files, place, groups, rows, stored)
    return (signed.reshape(*zeros.shape, -1) - zeros.unsqueeze(-1)).flatten(1)


def _zeros(files: TensorFiles, place: Place, groups: range, rows: range, stored: StoredScheme) -> Tensor:
    """int8 [rows, groups], to be subtracted from what `_unpacked` gives."""
    zeros = _unpacked_rows(files, f"{prefix_of(place)}.qzeros", groups, rows, stored)
    return zeros + ((1 << stored.bits - 1) - stored.zero)


def _unpacked_rows(files: TensorFiles, name: str, columns: range, rows: range, stored: StoredScheme) -> Tensor:
    """int8 [rows, columns] of a tensor [columns, rows / n], whose words a rank's rows may split."""
    n = stored.per_word
    words = range(rows.start // n, -(-rows.stop // n))
    skipped = rows.start - words.start * n
    return _unpacked(files.slice(name, columns, words), stored)[:, skipped : skipped + len(rows)].T


def _unpacked(words: Tensor, stored: StoredScheme) -> Tensor:
    """int8 [..., words * n], without what was added."""
    bits = stored.bits
    shifts = torch.arange(0, WORD_BITS, bits, dtype=torch.int32)
    if stored.packing is Packing.AWQ:
        shifts = shifts[list(AWQ_ORDER)]
    shifted = words.unsqueeze(-1) >> shifts & (1 << bits) - 1
    return (shifted - (1 << bits - 1)).to(torch.int8).flatten(1)


def _check_zeros_and_order(files: TensorFiles, place: Place, stored: StoredScheme) -> None:
    prefix, (rows, columns) = prefix_of(place), place.shape
    groups = range(columns // stored.scheme.group_of(columns))
    if not stored.zero_points and bool(_zeros(files, place, groups, range(rows), stored).any()):
        raise _unsupported(
            f"{prefix}.qzeros", "values have zero points, which the config denies; give the model unquantised"
        )
    if (name := f"{prefix}.g_idx") in files:
        neighbours = torch.arange(columns) // stored.scheme.group_of(columns)
        if not torch.equal(files.slice(name).long(), neighbours):
            raise _unsupported(name, "the columns of a group are not neighbours (desc_act); give the model unquantised")


def _unsupported(tensor: str, message: str) -> Failure:
    return Failure(ExitCode.UNSUPPORTED, f"tensor {tensor}: {message}", field="model")
