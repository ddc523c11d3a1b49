"""The Job that builds an engine: one completion index per rank."""

from __future__ import annotations

from typing import Any

from ..api import names
from ..api.engine import LLMEngine
from ..resolve.capability import CAPABILITIES
from ..resolve.defaults import Defaults
from ..resolve.resolution import Resolution
from . import pod
from .fetch_job import pull_secrets
from .job import job_spec
from .metadata import Manifest, compact, owned, owner_labels


def build_job(engine: LLMEngine, resolution: Resolution, defaults: Defaults) -> Manifest:
    """Named by the key, so that a namespace has one per key. The pods reach no hub: the model is there already."""
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
        "metadata": owned(engine, names.build_job(key), labels),
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
    for name, amount in (("cpu", defaults.build_cpu), ("memory", defaults.build_memory)):
        if name not in limits:  # A limit alone is a request too; a default above it would be refused.
            requests.setdefault(name, amount)
    if CAPABILITIES[resolution.toolchain].builds_on_gpu:
        requests[defaults.gpu_resource] = limits[defaults.gpu_resource] = "1"
    return compact(requests=requests, limits=limits)
