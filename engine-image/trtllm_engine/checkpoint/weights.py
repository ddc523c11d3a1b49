"""The weights of a rank, read by slice from a checkpoint's memory-mapped files.

Pages are read when they are used, and can be dropped again: nothing of the other ranks' weights is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from trtllm_engine.checkpoint.folder import read_headers
from trtllm_engine.checkpoint.inspect import check_tensors
from trtllm_engine.checkpoint.rounding import round_into
from trtllm_engine.checkpoint.safetensors_header import Header
from trtllm_engine.checkpoint.scratch import mapped_empty
from trtllm_engine.checkpoint.stored_scheme import StoredScheme
from trtllm_engine.checkpoint.tensor_files import TensorFiles, tensor_files
from trtllm_engine.checkpoint.unpacking import input_scale, unpack_into
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.families import Place, family_of
from trtllm_engine.network.parameters import IN_EXPERTS, MATRICES, Parameter, rank_parameters
from trtllm_engine.network.quantized import stored_tensors
from trtllm_engine.network.rank import WHOLE, Rank
from trtllm_engine.network.scheme import Scheme


def weight_order(
    folder: Path, config: DecoderConfig, rank: Rank = WHOLE, stored: StoredScheme | None = None
) -> list[Parameter]:
    """Every tensor that the rank holds, file by file. Raises what `check_tensors` raises."""
    headers = read_headers(folder)
    check_tensors(config, headers, stored)
    return [parameter for parameter, _ in _ordered(headers, config, rank, stored)]


def load_weights(
    folder: Path,
    config: DecoderConfig,
    dtype: torch.dtype,
    rank: Rank = WHOLE,
    scheme: Scheme | None = None,
    stored: StoredScheme | None = None,
    inputs: Mapping[str, float] | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that the rank holds, contiguous, in `weight_order`, converted to `dtype` where it has another.

    With a scheme, values and scales take the place of the matrices (`stored_tensors`). They are read where the
    checkpoint is quantised as `stored` says, and made by rounding where it is not: then of what the rank has, so that a
    scale of a whole row is that of the rank's part of it. `inputs` are then the scales of what the matrices multiply,
    by their names, where the scheme has such.

    What needs no conversion and lies together in the mapped file stays there; the rest is copied to files of its own.
    Raises what `check_tensors` and `unpack_into` raise, and NO_SPACE where the copies do not fit.
    """
    headers = read_headers(folder)
    check_tensors(config, headers, stored)
    with tensor_files(folder, headers) as files:
        for parameter, places in _ordered(headers, config, rank, stored):
            if scheme is None or parameter.role not in MATRICES:
                yield parameter.name, _read(files, parameter, places, dtype)
                continue
            tensors = stored_tensors(parameter, dtype, scheme)
            values, scales, *given = found = [mapped_empty(shape, kind) for kind, shape in tensors.values()]
            for index, place, part in _pieces(parameter, places):
                if stored is None:
                    round_into(values[index], scales[index], files.slice(place.tensor, *part), scheme)
                else:
                    unpack_into(values[index], scales[index], files, place, part, stored)
                    for scale in given:
                        scale.copy_(input_scale(files, place))
            if stored is None:
                for scale in given:
                    scale.fill_((inputs or {})[parameter.name])
            yield from zip(tensors, found, strict=True)


def _ordered(
    headers: dict[str, Header], config: DecoderConfig, rank: Rank, stored: StoredScheme | None
) -> list[tuple[Parameter, list[Place]]]:
    """Each parameter with the places of what the rank has of it, sorted by the file of the first."""
    files = {name: file for file, header in headers.items() for name in header.tensors}
    family = family_of(config.architecture)

    def file(item: tuple[Parameter, list[Place]]) -> str:
        parameter, (place, *_) = item
        packed = stored is not None and parameter.role in MATRICES
        return files[next(iter(stored.tensors(place))) if stored is not None and packed else place.tensor]

    found = [
        (parameter, _held(parameter, family.places(config, parameter.role, parameter.layer)))
        for parameter in rank_parameters(config, rank)
    ]
    return sorted(found, key=file)


def _held(parameter: Parameter, places: list[Place]) -> list[Place]:
    """Of experts with a tensor each, the rank's own."""
    return places if len(places) == 1 else [places[expert] for expert in parameter.part[0]]


def _pieces(parameter: Parameter, places: list[Place]) -> Iterator[tuple[int | slice, Place, tuple[range, ...]]]:
    """Where in the parameter each place's part goes, and what it is of the place's tensor."""
    if parameter.role in IN_EXPERTS:
        yield from ((expert, place, parameter.part[1:]) for expert, place in enumerate(places))
    else:
        (place,), (rows, *columns) = places, parameter.part
        yield slice(None), place, (range(rows.start + place.first_row, rows.stop + place.first_row), *columns)


def _read(files: TensorFiles, parameter: Parameter, places: list[Place], dtype: torch.dtype) -> Tensor:
    pieces = list(_pieces(parameter, places))
    if parameter.role not in IN_EXPERTS:
        ((_, place, part),) = pieces
        found = files.slice(place.tensor, *part)
        if found.dtype == dtype and found.is_contiguous():
            return found
    weights = mapped_empty(parameter.shape, dtype)
    for index, place, part in pieces:
        weights[index] = files.slice(place.tensor, *part)
    return weights
