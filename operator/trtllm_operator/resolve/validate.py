"""The rules that a spec must keep: those of the spec alone, and those that need the model's facts.

Each rule lives here once; admission, status and the command line show the same list. Order: what the user
wrote before what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trtllm_engine.contract import ModelFacts, Toolchain

from ..api import names
from ..api.conditions import Reason
from ..api.deployment import LLMDeploymentSpec
from ..api.engine import LLMEngineSpec
from ..api.engine_options import Device
from ..api.pods import Resources
from ..api.problems import Problem
from . import layout, projection
from .capability import BFLOAT16_SINCE, CAPABILITIES, MAX_RANKS, available, parse
from .defaults import Defaults
from .projection import Spec
from .source import check_source

PARALLEL_FIELDS: Final = ("tensorParallelSize", "pipelineParallelSize", "contextParallelSize")


def check_spec(spec: Spec, defaults: Defaults) -> list[Problem]:
    """Everything that is wrong with a spec as far as it can be known without the model."""
    return check_deployment(spec, defaults) if isinstance(spec, LLMDeploymentSpec) else check_engine(spec, defaults)


def check_deployment(spec: LLMDeploymentSpec, defaults: Defaults) -> list[Problem]:
    """`check_spec` of an LLMDeployment."""
    return [*_build_rules(spec, defaults), *_serving_rules(spec, defaults), *_pod_template_rules(spec)]


def check_engine(spec: LLMEngineSpec, defaults: Defaults) -> list[Problem]:
    """`check_spec` of an LLMEngine."""
    return list(_build_rules(spec, defaults))


def check_facts(spec: Spec, facts: ModelFacts) -> list[Problem]:
    """Everything that is wrong with a spec for this model."""
    return [*_checkpoint_rules(spec, facts), *_division_rules(spec, facts), *_length_rules(spec, facts)]


def _build_rules(spec: Spec, defaults: Defaults) -> Iterator[Problem]:
    yield from check_source(spec)
    if spec.trust_remote_code:
        yield _problem(
            Reason.INVALID_SPEC,
            "spec.trustRemoteCode",
            "true is not allowed: code from a model's repository is never run",
            "remove it; models of the families that the toolchains know need no code of their own",
        )
    if spec.model_volume is not None and spec.model_volume.read_only is False:
        yield _problem(
            Reason.INVALID_SPEC,
            "spec.modelVolume.readOnly",
            "false is not allowed: the volume with models is only ever mounted read-only",
            "remove it, or say true",
        )
    yield from _rank_rules(spec)
    yield from _toolchain_rules(spec, defaults)
    yield from _resource_rules(projection.options(spec).resources, f"{projection.options_path(spec)}.resources", "")


def _rank_rules(spec: Spec) -> Iterator[Problem]:
    mapping = projection.mapping(spec)
    world, sizes = mapping.world_size, (mapping.tp, mapping.pp, mapping.cp)
    path = next((f"spec.{name}" for name, size in zip(PARALLEL_FIELDS, sizes, strict=True) if size > 1), "")
    if layout.lay_out(world, spec.gpus_per_node) is None:
        per_node = spec.gpus_per_node or world
        numbers = ", ".join(map(str, layout.nearest(world, per_node)))
        yield _problem(
            Reason.INVALID_SPEC,
            path,
            f"{world} ranks do not divide evenly over nodes of {per_node} GPUs",
            f"the nearest numbers of ranks that do are {numbers}",
        )
    elif world > MAX_RANKS:
        yield _problem(
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            path,
            f"{world} ranks ({mapping.tp} tensor x {mapping.pp} pipeline x {mapping.cp} context) are not possible yet: "
            "one rank works in this version",
            "use 1",
        )


def _toolchain_rules(spec: Spec, defaults: Defaults) -> Iterator[Problem]:
    toolchain, where, named = (
        projection.toolchain(spec, defaults),
        projection.options_path(spec),
        _named(spec, defaults),
    )
    capability, target = CAPABILITIES[toolchain], projection.options(spec).target.compute_capability
    if not capability.available:
        yield _problem(
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            f"{where}.toolchain",
            f"{named} comes in a later version",
            f"possible are {', '.join(available())}",
        )
    elif isinstance(spec, LLMDeploymentSpec) and not capability.serves:
        serving = [name for name, other in CAPABILITIES.items() if other.serves]
        yield _problem(
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            f"{where}.toolchain",
            f"engines of toolchain {named} are built in this version (as an LLMEngine), and not served",
            f"set it to {' or '.join(serving)}",
        )
    elif capability.targets and target is None:
        yield _problem(
            Reason.AMBIGUOUS_GPU,
            f"{where}.target.computeCapability",
            f"is required: toolchain {named} builds for one kind of GPU",
            f"one of {', '.join(capability.targets)}, in quotes; toolchain torch needs none",
        )
    elif capability.targets and target not in capability.targets:
        others = [name for name, other in CAPABILITIES.items() if target in other.targets]
        yield _problem(
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            f"{where}.target.computeCapability",
            f'"{target}" is not possible with toolchain {named}, which builds for {", ".join(capability.targets)}',
            f"{' and '.join(others)} can" if others else "no toolchain builds for it",
        )
    elif capability.targets and target and spec.dtype == "bfloat16" and parse(target) < BFLOAT16_SINCE:
        yield _problem(
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "spec.dtype",
            f"bfloat16 is not possible for compute capability {target}: GPUs have it from 8.0",
            "use float16, or auto",
        )


def _named(spec: Spec, defaults: Defaults) -> str:
    """The toolchain, and whose choice it is."""
    toolchain = projection.options(spec).toolchain
    return toolchain.value if toolchain else f"{defaults.toolchain} (the operator's default)"


def _serving_rules(spec: LLMDeploymentSpec, defaults: Defaults) -> Iterator[Problem]:
    toolchain = projection.toolchain(spec, defaults)
    if spec.serving.device is Device.CPU and not CAPABILITIES[toolchain].serves_on_cpu:
        yield _problem(
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "spec.serving.device",
            f"cpu is not possible with engines of toolchain {toolchain}, which run on the GPU that they are for",
            f"set spec.engine.toolchain to {Toolchain.TORCH}, or the device to auto",
        )
    yield from _resource_rules(
        spec.serving.resources, "spec.serving.resources", spec.gpu.resource_name or defaults.gpu_resource
    )


def _resource_rules(resources: Resources, where: str, gpu: str) -> Iterator[Problem]:
    for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name in amounts:
            if name == gpu or name.startswith("nvidia.com/"):
                yield _problem(
                    Reason.INVALID_SPEC,
                    f"{where}.{kind}[{name}]",
                    "GPUs are not asked for here: their number follows from the parallel mapping",
                    "remove it; spec.gpu.resourceName of an LLMDeployment names another resource",
                )


def _pod_template_rules(spec: LLMDeploymentSpec) -> Iterator[Problem]:
    ours = f"{names.GROUP}/"
    for kind, keys in (("labels", spec.pod_template.labels), ("annotations", spec.pod_template.annotations)):
        for key in keys:
            if key.startswith(ours) or key == names.MANAGED_BY:
                where = f"spec.podTemplate.{kind}[{key}]"
                yield _problem(Reason.INVALID_SPEC, where, "is the operator's own key", "choose another key")


def _checkpoint_rules(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    if facts.format != "hf":
        yield _problem(
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "spec.model",
            f"{spec.model} is in the format {facts.format}, which comes in a later version",
            "use a checkpoint in the format of Hugging Face (config.json and safetensors)",
        )
    elif facts.family is None:
        yield _problem(
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "spec.model",
            f"{spec.model} has the architecture {facts.architecture}, which no toolchain of this version builds",
            "use a model of a family that the engine image lists",
        )
    if facts.quantization is not None:
        yield _problem(
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "spec.model",
            f"{spec.model} is quantised ({facts.quantization}), which comes in a later version",
            "use the checkpoint that is not quantised",
        )
    pinned = spec.model_digest if isinstance(spec, LLMEngineSpec) else None
    if pinned is not None and pinned.removeprefix("sha256:") != facts.digest.removeprefix("sha256:"):
        yield _problem(
            Reason.MODEL_MISMATCH,
            "spec.modelDigest",
            f"{pinned} is not the digest of {spec.model}, which is {facts.digest}",
            "the model was changed after it was pinned; create another engine for the new one",
        )


def _division_rules(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    mapping = projection.mapping(spec)
    if facts.num_attention_heads % mapping.tp:
        divisors = [n for n in range(1, facts.num_attention_heads + 1) if facts.num_attention_heads % n == 0]
        yield _problem(
            Reason.MODEL_MISMATCH,
            "spec.tensorParallelSize",
            f"{facts.num_attention_heads} attention heads of {spec.model} do not divide by {mapping.tp}",
            f"possible are {', '.join(map(str, divisors))}",
        )
    if facts.num_layers < mapping.pp:
        yield _problem(
            Reason.MODEL_MISMATCH,
            "spec.pipelineParallelSize",
            f"{mapping.pp} stages are more than the {facts.num_layers} layers of {spec.model}",
            f"use at most {facts.num_layers}",
        )


def _length_rules(spec: Spec, facts: ModelFacts) -> Iterator[Problem]:
    sizes, most = spec.build_config, facts.max_position_embeddings
    for name, length in (("maxSeqLen", sizes.max_seq_len), ("maxInputLen", sizes.max_input_len)):
        if length is not None and length > most:
            yield _problem(
                Reason.MODEL_MISMATCH,
                f"spec.buildConfig.{name}",
                f"{length} tokens are more than the {most} that {spec.model} was made for",
                f"use at most {most}",
            )


def _problem(code: Reason, path: str, message: str, hint: str) -> Problem:
    return Problem(path=path, code=code, message=message, hint=hint)
