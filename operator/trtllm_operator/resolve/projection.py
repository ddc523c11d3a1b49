"""What the two kinds of spec have in common, and where each wrote it."""

from __future__ import annotations

from trtllm_engine.contract import DUMMY, Mapping, Toolchain

from ..api.deployment import LLMDeploymentSpec
from ..api.engine import LLMEngineSpec
from ..api.engine_options import Device, EngineOptions
from ..api.llm_args import Backend, LlmArgs
from .capability import Route
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


def arguments(spec: Spec) -> LlmArgs:
    """All of LlmArgs; what an engine has no field for was not written."""
    return spec if isinstance(spec, LlmArgs) else LlmArgs.of(spec)


def route(spec: Spec, defaults: Defaults) -> Route:
    """How the model comes to run."""
    return route_of(arguments(spec), toolchain(spec, defaults))


def route_of(args: LlmArgs, toolchain: Toolchain) -> Route:
    """A backend needs no engine, whatever would build one."""
    if args.backend is not None:
        return Route.PYTORCH if args.backend is Backend.PYTORCH else Route.AUTODEPLOY
    return Route(toolchain.value)


def image(spec: Spec, defaults: Defaults) -> str:
    """Image that fetches, inspects and builds."""
    return options(spec).image or defaults.engine_image


def device(spec: Spec) -> Device:
    """What will compute; an engine by itself does not know."""
    return (isinstance(spec, LLMDeploymentSpec) and spec.serving.device) or Device.AUTO


def load_format(spec: Spec) -> str | None:
    """As pods are told it: None stands for the weights of the checkpoint."""
    return DUMMY if arguments(spec).load_format == DUMMY else None


def mapping(spec: Spec) -> Mapping:
    """As the user wrote it; expert degrees only where they say something that does not follow by itself."""
    tp = spec.tensor_parallel_size or 1
    asked = Mapping(
        tp=tp,
        pp=spec.pipeline_parallel_size or 1,
        cp=spec.context_parallel_size or 1,
        moe_tp=spec.moe_tensor_parallel_size,
        moe_ep=spec.moe_expert_parallel_size,
    )
    if asked.expert_sizes == (tp, 1):
        return Mapping(tp=tp, pp=asked.pp, cp=asked.cp)
    moe_tp, moe_ep = asked.expert_sizes
    return Mapping(tp=tp, pp=asked.pp, cp=asked.cp, moe_tp=moe_tp, moe_ep=moe_ep)
