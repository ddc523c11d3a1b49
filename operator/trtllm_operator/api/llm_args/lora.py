"""LlmArgs `build_config.lora_config`: which adapters an engine can take."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..schema import ApiModel
from .bounds import Positive, Text
from .facts import Ref

ModuleName = Annotated[str, Field(min_length=1, max_length=64)]


class LoraConfig(ApiModel):
    """Adapters that the engine is built for."""

    lora_dir: Annotated[tuple[Text, ...] | None, Field(max_length=64), Ref([], "build")] = None
    """Adapters, as folders or files."""
    lora_ckpt_source: Annotated[Literal["hf", "nemo"] | None, Ref("hf", "build")] = None
    """Format of the adapters."""
    max_lora_rank: Annotated[Positive | None, Ref(64, "build")] = None
    """Largest rank of an adapter."""
    lora_target_modules: Annotated[tuple[ModuleName, ...] | None, Field(max_length=64), Ref([], "build")] = None
    """Modules that adapters change, by TensorRT-LLM's names. Unset: those of the adapters."""
    trtllm_modules_to_hf_modules: Annotated[dict[str, ModuleName] | None, Field(max_length=64), Ref({}, "build")] = None
    """Names of these modules in the model's checkpoint."""
