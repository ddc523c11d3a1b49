"""The weights that a rank is built from: the checkpoint's, or random ones."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

import torch

from trtllm_engine.build.toolchain import BuildJob
from trtllm_engine.checkpoint.scratch import mapped_empty
from trtllm_engine.checkpoint.weights import load_weights, weight_order
from trtllm_engine.contract import DUMMY
from trtllm_engine.network.parameters import Parameter, rank_parameters

SPREAD: Final = 0.02
"""Standard deviation of random matrices; what most models are initialised with."""


def job_parameters(job: BuildJob) -> list[Parameter]:
    """What the rank holds, in the order of `job_weights`."""
    if job.args.load_format == DUMMY:
        return list(rank_parameters(job.config, job.rank))
    return weight_order(job.model, job.config, job.rank)


def job_weights(job: BuildJob, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of everything that the rank holds."""
    if job.args.load_format == DUMMY:
        return ((parameter.name, random_weight(parameter, dtype)) for parameter in job_parameters(job))
    return load_weights(job.model, job.config, dtype, job.rank)


def random_weight(parameter: Parameter, dtype: torch.dtype) -> torch.Tensor:
    """The same for the same part of the same tensor, so that ranks with copies agree; norms are ones, biases zeros."""
    if len(parameter.shape) == 1:
        return (torch.ones if parameter.role.value.endswith("norm") else torch.zeros)(parameter.shape, dtype=dtype)
    luck = torch.Generator().manual_seed(zlib.crc32(f"{parameter.name} {parameter.part}".encode()))
    return mapped_empty(parameter.shape, dtype).normal_(std=SPREAD, generator=luck)
