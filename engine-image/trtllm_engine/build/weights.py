"""The weights that a rank is built from: the checkpoint's, or random ones."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

import torch

from trtllm_engine.build.toolchain import BuildJob
from trtllm_engine.checkpoint.rounding import round_into
from trtllm_engine.checkpoint.scratch import mapped_empty
from trtllm_engine.checkpoint.weights import load_weights, weight_order
from trtllm_engine.contract import DUMMY
from trtllm_engine.network.parameters import MATRICES, Parameter, Shape, rank_parameters
from trtllm_engine.network.quantized import stored_tensors
from trtllm_engine.network.scheme import Scheme

SPREAD: Final = 0.02
"""Standard deviation of random matrices; what most models are initialised with."""

RANDOM_INPUT: Final = 8.0
"""The largest activation that random matrices have a place for."""


def job_tensors(job: BuildJob, dtype: torch.dtype) -> dict[str, tuple[torch.dtype, Shape]]:
    """Type and shape of what the rank holds, by name, in the order of `job_weights`."""
    tensors: dict[str, tuple[torch.dtype, Shape]] = {}
    for parameter in _job_parameters(job):
        tensors |= stored_tensors(parameter, dtype, job.scheme)
    return tensors


def job_weights(job: BuildJob, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of everything that the rank holds."""
    if job.args.load_format == DUMMY:
        return (pair for parameter in _job_parameters(job) for pair in _random_tensors(parameter, dtype, job.scheme))
    return load_weights(job.model, job.config, dtype, job.rank, job.scheme, job.stored, job.inputs)


def _job_parameters(job: BuildJob) -> list[Parameter]:
    if job.args.load_format == DUMMY:
        return list(rank_parameters(job.config, job.rank))
    return weight_order(job.model, job.config, job.rank, job.stored)


def _random_tensors(parameter: Parameter, dtype: torch.dtype, scheme: Scheme | None) -> list[tuple[str, torch.Tensor]]:
    weight = random_weight(parameter, dtype)
    if scheme is None or parameter.role not in MATRICES:
        return [(parameter.name, weight)]
    stored = stored_tensors(parameter, dtype, scheme)
    values, scales, *inputs = tensors = [mapped_empty(shape, kind) for kind, shape in stored.values()]
    round_into(values.flatten(0, -2), scales.flatten(0, -2), weight.flatten(0, -2), scheme)
    for scale in inputs:
        scale.fill_(RANDOM_INPUT / scheme.largest)
    return list(zip(stored, tensors, strict=True))


def random_weight(parameter: Parameter, dtype: torch.dtype) -> torch.Tensor:
    """The same for the same part of the same tensor, so that ranks with copies agree; norms are ones, biases zeros."""
    if len(parameter.shape) == 1:
        return (torch.ones if parameter.role.value.endswith("norm") else torch.zeros)(parameter.shape, dtype=dtype)
    luck = torch.Generator().manual_seed(zlib.crc32(f"{parameter.name} {parameter.part}".encode()))
    return mapped_empty(parameter.shape, dtype).normal_(std=SPREAD, generator=luck)
