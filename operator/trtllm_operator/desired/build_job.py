"""The Job that builds an engine: one completion index per rank."""

from __future__ import annotations

import math
from typing import Any, Final

from ..api import names, quantity
from ..api.engine import LLMEngine
from ..resolve.capability import CAPABILITIES
from ..resolve.defaults import Defaults
from ..resolve.memory import DTYPE_BYTES, GIB
from ..resolve.resolution import Resolution
from . import pod
from .fetch_job import pull_secrets
from .job import job_spec
from .metadata import Manifest, compact, owned, owner_labels

WEIGHTS_FACTOR: Final = 1.8
BUILD_OVERHEAD: Final = 10**9
"""Host memory that a rank's build takes at most, beside a factor of its weights; `tests/bench/engine_build.py` measures
it."""


def build_job(engine: LLMEngine, resolution: Resolution, defaults: Defaults, rebuild: int = 0) -> Manifest:
    """Named by the key, so that a namespace has one per key. The pods reach no hub: the model is there already.

    `rebuild`: the how-manieth of corrupt files. The pods are told nothing of it: they verify what they find, keep what
    is whole, and build what is not.
    """
    spec, key = engine.valid_spec, resolution.engine_key
    labels = {names.ROLE_LABEL: "build", names.KEY_LABEL: names.key_label(key)}
    mounts = [pod.model(spec, read_only_cache=True), pod.store(key, read_only=False), pod.scratch()]
    container = pod.container(
        image=resolution.image,
        command="build",
        mounts=mounts,
        defaults=defaults,
        resources=_resources(engine, resolution, defaults),
        environment={"HF_HUB_OFFLINE": "1"},
    )
    template = {
        "metadata": {
            "labels": {**owner_labels(engine), **labels},
            "annotations": pod.request_annotation(resolution.build_request()),
        },
        "spec": pod.pod_spec(
            container,
            mounts=mounts,
            scheduling=pod.placement(spec),
            pull_secrets=(*defaults.image_pull_secrets, *pull_secrets(spec)),
            restartPolicy="Never",
        ),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **owned(engine, names.build_job(key), labels),
            **({"annotations": {names.REBUILD_ANNOTATION: str(rebuild)}} if rebuild else {}),
        },
        "spec": job_spec(
            template,
            deadline_seconds=spec.deadline_seconds or defaults.build_deadline_seconds,
            completionMode="Indexed",
            completions=resolution.mapping.world_size,
            backoffLimitPerIndex=2,
            maxFailedIndexes=0,
        ),
    }


def _resources(engine: LLMEngine, resolution: Resolution, defaults: Defaults) -> dict[str, Any]:
    written = engine.valid_spec.resources
    requests, limits = dict(written.requests), dict(written.limits)
    for name, amount in (("cpu", defaults.build_cpu), ("memory", _memory(resolution, defaults))):
        if name not in limits:  # A limit alone is a request too; a default above it would be refused.
            requests.setdefault(name, amount)
    if CAPABILITIES[resolution.toolchain].builds_on_gpu:
        requests[defaults.gpu_resource] = limits[defaults.gpu_resource] = "1"
    return compact(requests=requests, limits=limits)


def _memory(resolution: Resolution, defaults: Defaults) -> str:
    """What the scheduler sets aside: what the administrator says; else the estimate, and at least the default.

    No limit follows from it: an estimate that is too low must not end a build that would have ended well.
    """
    if "build_memory" in defaults.model_fields_set:
        return defaults.build_memory
    weights = resolution.facts.parameters * DTYPE_BYTES[resolution.args.dtype] / resolution.mapping.world_size
    estimate = math.ceil((WEIGHTS_FACTOR * weights + BUILD_OVERHEAD) / GIB)
    least = quantity.amount(defaults.build_memory)
    return defaults.build_memory if least is not None and least >= estimate * GIB else f"{estimate}Gi"
