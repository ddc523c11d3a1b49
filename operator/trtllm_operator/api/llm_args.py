"""The fields of TensorRT-LLM's `LlmArgs` that this version knows, one for one, in camelCase.

A field that is None was not written. Its reference default stands in its description, never in the schema.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .schema import ApiModel

Dtype = Literal["auto", "float16", "bfloat16", "float32"]


class BuildConfig(ApiModel):
    """LlmArgs `build_config`: the sizes that an engine is built for."""

    max_batch_size: int | None = Field(default=None, ge=1, le=65536)
    """Sequences that are computed together. LlmArgs default: 2048; unset here: 8."""
    max_input_len: int | None = Field(default=None, ge=1, le=16777216)
    """Longest prompt, in tokens. LlmArgs default: 1024; unset here: as long as a sequence may be."""
    max_seq_len: int | None = Field(default=None, ge=1, le=16777216)
    """Longest sequence, prompt and answer, in tokens. LlmArgs default and unset here: the model's, here at most
    8192."""


class LlmArgs(ApiModel):
    """What to serve and how to build it."""

    model: str = Field(min_length=1, max_length=512)
    """A repository of the hub (owner/name), or a path below /models, where modelVolume is mounted."""
    revision: str | None = Field(default=None, min_length=1, max_length=128)
    """Branch, tag or commit of a hub model. Default: the repository's default branch."""
    dtype: Dtype | None = None
    """Type of weights and activations: auto, float16, bfloat16 or float32. Default: auto, which follows the
    checkpoint; float32 checkpoints become float16."""
    tensor_parallel_size: int | None = Field(default=None, ge=1, le=4096)
    """Ranks that share each layer. Default: 1."""
    pipeline_parallel_size: int | None = Field(default=None, ge=1, le=4096)
    """Stages that the layers are cut into. Default: 1."""
    context_parallel_size: int | None = Field(default=None, ge=1, le=4096)
    """Ranks that share each sequence. Default: 1."""
    gpus_per_node: int | None = Field(default=None, ge=1, le=64)
    """GPUs of a node that one replica may use. Default: as many as there are ranks, on one node."""
    trust_remote_code: bool | None = None
    """Whether code from the model's repository may run. Default: false; true is refused in this version."""
    build_config: BuildConfig = BuildConfig()
    """The sizes that the engine is built for."""
