"""The Job that brings a hub model into the cache, or only looks at a model on a volume."""

from __future__ import annotations

from typing import Any, Final

from trtllm_engine.contract import FetchRequest

from ..api import names
from ..api.deployment import LLMDeploymentSpec
from ..api.pods import LocalReference
from ..resolve import projection
from ..resolve.defaults import Defaults
from ..resolve.projection import Spec
from ..resolve.source import model_source, source_hash
from . import pod
from .job import job_spec
from .metadata import Manifest, Owner, owned, owner_labels

REQUESTS: Final = {"cpu": "100m", "memory": "512Mi"}
"""A fetch waits for the network and the disk: it streams, and reads only headers."""


def fetch_job(owner: Owner, defaults: Defaults) -> Manifest:
    """No GPU. The only pod that sees the hub token. Raises `Refused` if the owner's spec names no source."""
    spec = owner.valid_spec
    labels = {**owner_labels(owner), names.ROLE_LABEL: "fetch"}
    mounts = [pod.model(spec, read_only_cache=False), pod.scratch()]
    container = pod.container(
        image=projection.image(spec, defaults),
        command="fetch",
        mounts=mounts,
        defaults=defaults,
        resources={"requests": dict(REQUESTS)},
        environment=defaults.fetch_environment,
        variables=_token(spec),
    )
    template = {
        "metadata": {
            "labels": labels,
            "annotations": pod.request_annotation(
                FetchRequest(model=model_source(spec, defaults), load_format=projection.load_format(spec))
            ),
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
        "metadata": owned(
            owner, names.fetch_job(owner.meta.name, source_hash(spec, defaults)), {names.ROLE_LABEL: "fetch"}
        ),
        "spec": job_spec(template, deadline_seconds=defaults.fetch_deadline_seconds, backoffLimit=3),
    }


def pull_secrets(spec: Spec) -> tuple[LocalReference, ...]:
    """What the spec names to pull images with."""
    return spec.pod_template.image_pull_secrets if isinstance(spec, LLMDeploymentSpec) else spec.image_pull_secrets


def _token(spec: Spec) -> list[dict[str, Any]]:
    reference = spec.hub_token_secret_ref
    if reference is None:
        return []
    return [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": reference.name, "key": reference.key}}}]
