"""The tensors of a checkpoint, memory-mapped: pages are read when they are used, and can be dropped again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open

from trtllm_engine.checkpoint.folder import read_headers
from trtllm_engine.checkpoint.inspect import check_tensors
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.families import family_of
from trtllm_engine.network.parameters import parameters


def weight_order(folder: Path, config: DecoderConfig) -> list[tuple[str, str]]:
    """(tensor, file) of every tensor that the decoder uses, file by file. Raises what `check_tensors` raises."""
    headers = read_headers(folder)
    check_tensors(config, headers)
    place = {name: file for file, header in headers.items() for name in header.tensors}
    family = family_of(config.architecture)
    names = [family.tensor(role, layer) for role, layer, _ in parameters(config)]
    return sorted(((name, place[name]) for name in names), key=lambda item: item[1])


def load_weights(folder: Path, config: DecoderConfig, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that the decoder uses, in `weight_order`, converted to `dtype` where it has another.

    A tensor that needs no conversion lives in the mapped file. Raises what `check_tensors` raises.
    """
    for file, group in itertools.groupby(weight_order(folder, config), key=lambda item: item[1]):
        with safe_open(str(folder / file), framework="pt") as tensors:
            for name, _ in group:
                yield name, tensors.get_tensor(name).to(dtype)
