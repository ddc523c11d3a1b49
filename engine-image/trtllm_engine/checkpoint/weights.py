"""The weights of a rank, read by slice from a checkpoint's memory-mapped files.

Pages are read when they are used, and can be dropped again: nothing of the other ranks' weights is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from trtllm_engine.checkpoint.folder import read_headers
from trtllm_engine.checkpoint.inspect import check_tensors
from trtllm_engine.checkpoint.scratch import mapped_empty
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.families import Place, family_of
from trtllm_engine.network.parameters import IN_EXPERTS, Parameter, rank_parameters
from trtllm_engine.network.rank import WHOLE, Rank


def weight_order(folder: Path, config: DecoderConfig, rank: Rank = WHOLE) -> list[Parameter]:
    """Every tensor that the rank holds, file by file. Raises what `check_tensors` raises."""
    return [parameter for parameter, _ in _ordered(folder, config, rank)]


def load_weights(
    folder: Path, config: DecoderConfig, dtype: torch.dtype, rank: Rank = WHOLE
) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that the rank holds, contiguous, in `weight_order`, converted to `dtype` where it has another.

    What needs no conversion and lies together in the mapped file stays there; the rest is copied to files of its own.
    Raises what `check_tensors` raises, and NO_SPACE where the copies do not fit.
    """
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        for parameter, pieces in _ordered(folder, config, rank):
            for file, _ in pieces:
                if file not in files:
                    files[file] = stack.enter_context(safe_open(str(folder / file), framework="pt"))
            yield parameter.name, _read(parameter, [(files[file], place) for file, place in pieces], dtype)


def _ordered(folder: Path, config: DecoderConfig, rank: Rank) -> list[tuple[Parameter, list[tuple[str, Place]]]]:
    """Each parameter with the (file, place) of its pieces, sorted by the file of the first."""
    headers = read_headers(folder)
    check_tensors(config, headers)
    files = {name: file for file, header in headers.items() for name in header.tensors}
    family = family_of(config.architecture)
    found = [
        (
            parameter,
            [
                (files[place.tensor], place)
                for place in _pieces(parameter, family.places(config, parameter.role, parameter.layer))
            ],
        )
        for parameter in rank_parameters(config, rank)
    ]
    return sorted(found, key=lambda item: item[1][0][0])


def _pieces(parameter: Parameter, places: list[Place]) -> list[Place]:
    """The rank's: of experts with a tensor each, only its own."""
    return places if len(places) == 1 else [places[expert] for expert in parameter.part[0]]


def _read(parameter: Parameter, pieces: list[tuple[Any, Place]], dtype: torch.dtype) -> torch.Tensor:
    if parameter.role not in IN_EXPERTS:
        ((file, place),) = pieces
        stored = _slice(file, place, parameter.part)
        if stored.dtype == dtype and stored.is_contiguous():
            return stored
        return mapped_empty(parameter.shape, dtype).copy_(stored)
    weights = mapped_empty(parameter.shape, dtype)
    for index, (file, place) in enumerate(pieces):
        weights[index] = _slice(file, place, parameter.part[1:])
    return weights


def _slice(file: Any, place: Place, part: tuple[range, ...]) -> torch.Tensor:
    """A view of the mapped file."""
    rows = range(part[0].start + place.first_row, part[0].stop + place.first_row)
    tensor: torch.Tensor = file.get_slice(place.tensor)[tuple(slice(r.start, r.stop) for r in (rows, *part[1:]))]
    return tensor
