"""What the two kinds of spec have in common, and where each wrote it."""

from __future__ import annotations

from trtllm_engine.contract import Mapping, Toolchain

from ..api.deployment import LLMDeploymentSpec
from ..api.engine import LLMEngineSpec
from ..api.engine_options import Device, EngineOptions
from .defaults import Defaults

Spec = LLMDeploymentSpec | LLMEngineSpec


def options(spec: Spec) -> EngineOptions:
    """How the engine is built and kept."""
    return spec.engine if isinstance(spec, LLMDeploymentSpec) else spec


def options_path(spec: Spec) -> str:
    """Where the user writes `options`."""
    return "spec.engine" if isinstance(spec, LLMDeploymentSpec) else "spec"


def toolchain(spec: Spec, defaults: Defaults) -> Toolchain:
    return options(spec).toolchain or defaults.toolchain


def image(spec: Spec, defaults: Defaults) -> str:
    """Image that fetches, inspects and builds."""
    return options(spec).image or defaults.engine_image


def device(spec: Spec) -> Device:
    """What will compute; an engine by itself does not know."""
    return (isinstance(spec, LLMDeploymentSpec) and spec.serving.device) or Device.AUTO


def mapping(spec: Spec) -> Mapping:
    return Mapping(
        tp=spec.tensor_parallel_size or 1, pp=spec.pipeline_parallel_size or 1, cp=spec.context_parallel_size or 1
    )
