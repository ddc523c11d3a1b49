"""LlmArgs `calib_config`: how scales are measured where a scheme needs it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..schema import ApiModel
from .bounds import Positive, Text, Tokens
from .facts import Ref


class CalibConfig(ApiModel):
    """How scales are measured."""

    device: Annotated[Literal["cuda", "cpu"] | None, Ref("cuda", "build")] = None
    """What calibration computes on."""
    calib_dataset: Annotated[Text | None, Ref("cnn_dailymail", "build")] = None
    """Dataset of the hub, or a path."""
    calib_batches: Annotated[Positive | None, Ref(512, "build")] = None
    """Batches that are run."""
    calib_batch_size: Annotated[Positive | None, Ref(1, "build")] = None
    """Samples in a batch."""
    calib_max_seq_length: Annotated[Tokens | None, Ref(512, "build")] = None
    """Longest sample, in tokens."""
    random_seed: Annotated[int | None, Field(ge=0, le=2**32 - 1), Ref(1234, "build")] = None
    """Seed of the choice of samples."""
    tokenizer_max_seq_length: Annotated[Tokens | None, Ref(2048, "build")] = None
    """Longest text that the tokenizer keeps, in tokens."""
