"""Rules about what a toolchain can do, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from trtllm_engine.contract import QuantAlgo, Toolchain

from ...api import names
from ...api.conditions import Reason
from ...api.deployment import LLMDeploymentSpec
from ...api.engine_options import Device
from ...api.pods import Resources
from ...api.problems import Problem
from .. import projection
from ..arbitrator import shown
from ..capability import (
    BACKENDS,
    BFLOAT16_SINCE,
    CAPABILITIES,
    FP4_SINCE,
    FP8_SINCE,
    INT4_SINCE,
    OWN,
    RTX_FLOAT32_SINCE,
    Feature,
    Route,
    able,
    available,
    schemes,
)
from ..fields import ALL, asks, no_effect
from ..options import ROOT
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, caution, invalid, rule, unsupported

ENGINES: Final = ALL - BACKENDS
PLANS: Final = frozenset({Route.TENSORRT, Route.TENSORRT_RTX})
BLACKWELL: Final = range(100, 120)
"""Compute capabilities, without the dot, to which SM-1 applies."""
NOT_ON_BLACKWELL: Final = frozenset({"W8A16", "W4A16", "FP8_PER_CHANNEL_PER_TOKEN"})
NOT_ON_SM100: Final = (
    "gemmSwigluPlugin",
    "fp8RowwiseGemmPlugin",
    "lowLatencyGemmPlugin",
    "lowLatencyGemmSwigluPlugin",
    "bertContextFmhaFp32Acc",
)


@rule("CAP-1", Stage.SPEC, Outcome.REFUSES, "The toolchain, or the backend, is one of this version.", ["backend"])
def available_in_this_version(case: Case) -> Iterator[Finding]:
    if case.route in BACKENDS:
        yield unsupported(
            "spec.backend",
            f"{case.args.backend} comes in a later version: it serves without an engine",
            f"remove it; possible in its place is spec.engine.toolchain {_or(_usable(case))}",
        )
    elif not CAPABILITIES[case.toolchain].available:
        yield unsupported(
            f"{projection.options_path(case.spec)}.toolchain",
            f"{_named(case)} comes in a later version",
            f"set it to {_or(_usable(case))}",
        )


@rule(
    "CAP-2",
    Stage.SPEC,
    Outcome.REFUSES,
    "The engine that a deployment serves can be served.",
    ["engine.toolchain"],
    routes=ENGINES,
)
def can_serve(case: Case) -> Iterator[Finding]:
    if CAPABILITIES[case.toolchain].available and case.toolchain not in _usable(case):
        yield unsupported(
            "spec.engine.toolchain",
            f"engines of toolchain {_named(case)} are built in this version (as an LLMEngine), and not served",
            f"set it to {_or(_usable(case))}",
        )


@rule(
    "CAP-3",
    Stage.SPEC,
    Outcome.REFUSES,
    "An engine for one kind of GPU says for which one, and the toolchain knows it.",
    ["engine.target.computeCapability"],
    routes=OWN,
)
def target_is_known(case: Case) -> Iterator[Finding]:
    capability, target = CAPABILITIES[case.toolchain], projection.options(case.spec).target.compute_capability
    path = f"{projection.options_path(case.spec)}.target.computeCapability"
    if not capability.targets or (isinstance(case.spec, LLMDeploymentSpec) and not capability.serves):
        return
    if target is None:
        yield Problem(
            path=path,
            code=Reason.AMBIGUOUS_GPU,
            message=f"is required: toolchain {_named(case)} builds for one kind of GPU",
            hint=f"one of {', '.join(capability.targets)}, in quotes; toolchain torch needs none",
        )
    elif target not in capability.targets:
        others = [name for name, other in CAPABILITIES.items() if target in other.targets]
        yield unsupported(
            path,
            f'"{target}" is not possible with toolchain {_named(case)}, which builds for '
            f"{', '.join(capability.targets)}",
            f"{' and '.join(others)} can" if others else "no toolchain builds for it",
        )


@rule(
    "CAP-4",
    Stage.SPEC,
    Outcome.WARNS,
    "A target means nothing to an engine that runs anywhere.",
    ["engine.target.computeCapability"],
    routes=frozenset({Route.TORCH}),
)
def target_without_effect(case: Case) -> Iterator[Finding]:
    where = projection.options_path(case.spec)
    if projection.options(case.spec).target.compute_capability is not None:
        yield caution(
            f"{where}.target.computeCapability",
            "has no effect: engines of toolchain torch run on any device; remove it, or choose nodes with gpuProduct",
        )


@rule(
    "CAP-5",
    Stage.SPEC,
    Outcome.REFUSES,
    "A feature that the toolchain, or the backend, does not have is refused at its field, with who has it "
    "(SPEC-8, Q25: multi-token prediction is for backend pytorch alone).",
)
def features(case: Case) -> Iterator[Finding]:
    for ask in asks(case.written):
        elsewhere = able(ask.feature, ask.value)
        if case.route not in elsewhere:
            value = "" if isinstance(ask.value, list | dict) else f"{shown(ask.value)} "
            here = schemes(case.route) if ask.feature is Feature.QUANTISATION else ()
            lacks = f"of {ask.feature} it has {_and(here)}" if here else f"it has no support for {ask.feature}"
            why = "" if value.strip() == ask.feature else f": {lacks}"
            yield unsupported(
                ask.path,
                f"{value}is not possible with {_route(case)}{why}",
                (f"use {_or(here)}, or " if here else "") + (_elsewhere(case, elsewhere) or _without(ask.feature)),
            )


@rule(
    "CAP-6",
    Stage.SPEC,
    Outcome.WARNS,
    "A field that changes nothing on the chosen route is told, with the reason (tokenizerRevision and the statistics "
    "limits: Q29).",
)
def fields_without_effect(case: Case) -> Iterator[Finding]:
    for path in case.written:
        field = path.removeprefix(f"{ROOT}.")
        if (why := no_effect(field, case.route)) is not None:
            yield caution(path, f"has no effect with {_route(case)}: {why}; remove it")


@rule("CAP-7", Stage.SPEC, Outcome.REFUSES, "A CPU serves only what runs on one.", ["serving.device"])
def device_is_possible(case: Case) -> Iterator[Finding]:
    if not isinstance(case.spec, LLMDeploymentSpec) or case.spec.serving.device is not Device.CPU:
        return
    if case.route in BACKENDS or not CAPABILITIES[case.toolchain].serves_on_cpu:
        yield unsupported(
            "spec.serving.device",
            f"cpu is not possible with engines of toolchain {case.route}, which run on the GPU that they are for"
            if case.route in ENGINES
            else f"cpu is not possible with {case.route}",
            f"set spec.engine.toolchain to {Toolchain.TORCH}, or the device to auto",
        )


@rule(
    "INIT-3",
    Stage.SPEC,
    Outcome.REFUSES,
    "GPUs have bfloat16 from compute capability 8.0.",
    ["dtype", "engine.target.computeCapability"],
    routes=ALL - {Route.TORCH},
)
def bfloat16_on_the_gpu(case: Case) -> Iterator[Finding]:
    if case.spec.dtype == "bfloat16" and case.capability is not None and case.capability < BFLOAT16_SINCE:
        yield unsupported(
            "spec.dtype",
            f"bfloat16 is not possible for compute capability {_dotted(case)}: GPUs have it from 8.0",
            "use float16, or auto",
        )


@rule(
    "CAP-9",
    Stage.SPEC,
    Outcome.REFUSES,
    "TensorRT-RTX multiplies float32 matrices from compute capability 8.0.",
    ["dtype", "engine.target.computeCapability"],
    routes=frozenset({Route.TENSORRT_RTX}),
)
def float32_on_the_gpu(case: Case) -> Iterator[Finding]:
    if case.spec.dtype == "float32" and case.capability is not None and case.capability < RTX_FLOAT32_SINCE:
        yield unsupported(
            "spec.dtype",
            f"float32 is not possible for compute capability {_dotted(case)}: {case.route} multiplies it from 8.0",
            "use float16, or auto",
        )


@rule(
    "CAP-10",
    Stage.SPEC,
    Outcome.REFUSES,
    "TensorRT has 4-bit integers from compute capability 8.0.",
    ["quantConfig.quantAlgo", "engine.target.computeCapability"],
    routes=PLANS,
)
def small_integers_on_the_gpu(case: Case) -> Iterator[Finding]:
    if case.quantisation == QuantAlgo.W4A16 and _lacks_int4(case):
        yield unsupported(
            "spec.quantConfig.quantAlgo",
            f"{case.quantisation} is not possible for compute capability {_dotted(case)}: {case.route} has 4-bit "
            "integers from 8.0",
            f"use {QuantAlgo.W8A16}",
        )


@rule(
    "CAP-11",
    Stage.FACTS,
    Outcome.REFUSES,
    "So of a checkpoint that has them (CAP-10).",
    ["model", "engine.target.computeCapability"],
    routes=PLANS,
)
def stored_small_integers_on_the_gpu(case: Case) -> Iterator[Finding]:
    if case.stored is not None and case.stored.algo == QuantAlgo.W4A16 and _lacks_int4(case):
        yield unsupported(
            "spec.model",
            f"the 4-bit weights of {case.spec.model} are not possible for compute capability {_dotted(case)}: "
            f"{case.route} has them from 8.0",
            f"use the checkpoint that is not quantised, with quantConfig.quantAlgo: {QuantAlgo.W8A16}",
        )


def _lacks_int4(case: Case) -> bool:
    return case.capability is not None and case.capability < INT4_SINCE


@rule(
    "SM-1",
    Stage.NODES,
    Outcome.REFUSES,
    "GPUs of compute capability 10.0 to 11.9 have no INT8 or INT4 weight-only kernels, no SmoothQuant, no INT8 cache.",
    ["quantConfig.quantAlgo", "quantConfig.kvCacheQuantAlgo"],
    routes=frozenset({Route.TENSORRT_LLM}),
)
def schemes_that_blackwell_lacks(case: Case) -> Iterator[Finding]:
    if case.capability is None or case.capability[0] * 10 + case.capability[1] not in BLACKWELL:
        return
    algo, hint = case.quantisation, "use FP8 or NVFP4"
    if algo is not None and (algo in NOT_ON_BLACKWELL or algo.startswith("W8A8_SQ")):
        yield unsupported("spec.quantConfig.quantAlgo", f"{algo} is not possible for {_gpus(case)}", hint)
    if case.cache_quantisation == "INT8":
        yield unsupported("spec.quantConfig.kvCacheQuantAlgo", f"INT8 is not possible for {_gpus(case)}", hint)


@rule(
    "SM-2",
    Stage.NODES,
    Outcome.REFUSES,
    "FP8 needs compute capability 8.9, NVFP4 needs 10.0.",
    ["quantConfig.quantAlgo", "quantConfig.kvCacheQuantAlgo"],
    routes=frozenset({Route.TENSORRT_LLM}),
)
def schemes_that_older_gpus_lack(case: Case) -> Iterator[Finding]:
    if case.capability is None:
        return
    for field, algo in (("quantAlgo", case.quantisation), ("kvCacheQuantAlgo", case.cache_quantisation)):
        needs_fp8 = algo is not None and (algo.startswith("FP8") or algo == "W4A8_AWQ")
        since = FP8_SINCE if needs_fp8 else FP4_SINCE if algo == "NVFP4" else None
        if since is not None and case.capability < since:
            yield unsupported(
                f"spec.quantConfig.{field}",
                f"{algo} is not possible for {_gpus(case)}: GPUs have it from {since[0]}.{since[1]}",
                "choose other GPUs in engine.target, or another scheme (W4A16_AWQ works on all)",
            )


@rule(
    "PLG-3",
    Stage.NODES,
    Outcome.REFUSES,
    "GPUs of compute capability 10.0 lack the FP8 plugins of Hopper.",
    [f"buildConfig.pluginConfig.{name}" for name in NOT_ON_SM100],
    routes=frozenset({Route.TENSORRT_LLM}),
)
def plugins_that_sm100_lacks(case: Case) -> Iterator[Finding]:
    if case.capability != (10, 0):
        return
    for name in NOT_ON_SM100:
        if case.plugin(name) not in (None, False, "disable"):
            yield unsupported(
                f"spec.buildConfig.pluginConfig.{name}",
                f"{shown(case.plugin(name))} is not possible for {_gpus(case)}",
                "remove it",
            )


@rule(
    "OP-3",
    Stage.SPEC,
    Outcome.REFUSES,
    "GPUs are not asked for as resources.",
    ["serving.resources", "engine.resources"],
)
def no_gpu_resources(case: Case) -> Iterator[Finding]:
    options, where = projection.options(case.spec), projection.options_path(case.spec)
    yield from _gpu_resources(options.resources, f"{where}.resources", "")
    if isinstance(case.spec, LLMDeploymentSpec):
        gpu = case.spec.gpu.resource_name or case.defaults.gpu_resource
        yield from _gpu_resources(case.spec.serving.resources, "spec.serving.resources", gpu)


def _gpu_resources(resources: Resources, where: str, gpu: str) -> Iterator[Finding]:
    for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name in amounts:
            if name == gpu or name.startswith("nvidia.com/"):
                yield invalid(
                    f"{where}.{kind}[{name}]",
                    "GPUs are not asked for here: their number follows from the parallel mapping",
                    "remove it; spec.gpu.resourceName of an LLMDeployment names another resource",
                )


@rule("OP-4", Stage.SPEC, Outcome.REFUSES, "The operator's own labels and annotations are its own.", ["podTemplate"])
def no_keys_of_the_operator(case: Case) -> Iterator[Finding]:
    if not isinstance(case.spec, LLMDeploymentSpec):
        return
    template = case.spec.pod_template
    for kind, keys in (("labels", template.labels), ("annotations", template.annotations)):
        for key in keys:
            if key.startswith(f"{names.GROUP}/") or key == names.MANAGED_BY:
                where = f"spec.podTemplate.{kind}[{key}]"
                yield invalid(where, "is the operator's own key", "choose another key")


def _named(case: Case) -> str:
    """The toolchain, and whose choice it is."""
    toolchain = projection.options(case.spec).toolchain
    return toolchain.value if toolchain else f"{case.defaults.toolchain} (the operator's default)"


def _route(case: Case) -> str:
    return str(case.route) if case.route in BACKENDS else f"toolchain {_named(case)}"


def _usable(case: Case) -> list[str]:
    """The toolchains that this kind of object can use in this version."""
    served = isinstance(case.spec, LLMDeploymentSpec)
    return [name for name in available() if CAPABILITIES[name].serves or not served]


def _elsewhere(case: Case, able: frozenset[Route]) -> str | None:
    """Who has what is refused here, and whether already."""
    now = [route.value for route in Route if route in able and route.value in _usable(case)]
    later = [route.value for route in Route if route in able and route.value not in (*now, *available())]
    said = (
        f"{_and(now)} can" if now else "",
        f"{_and(later)} will be able to, in a later version" if later else "",
    )
    return "remove it here; " + ", and ".join(filter(None, said)) if any(said) else None


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _or(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _without(feature: Feature) -> str:
    return "remove it" + ("; `llmd plan` shows what would be built" if feature is Feature.DRY_RUN else "")


def _dotted(case: Case) -> str:
    return "{}.{}".format(*case.capability) if case.capability else "unknown"


def _gpus(case: Case) -> str:
    return f"GPUs of compute capability {_dotted(case)}"


RULES: Final[tuple[Rule, ...]] = (
    available_in_this_version,
    can_serve,
    target_is_known,
    target_without_effect,
    bfloat16_on_the_gpu,
    float32_on_the_gpu,
    small_integers_on_the_gpu,
    stored_small_integers_on_the_gpu,
    features,
    fields_without_effect,
    device_is_possible,
    schemes_that_blackwell_lacks,
    schemes_that_older_gpus_lack,
    plugins_that_sm100_lacks,
    no_gpu_resources,
    no_keys_of_the_operator,
)
