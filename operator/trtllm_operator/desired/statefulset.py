"""A replica group: one StatefulSet per copy of the model, whole or not at all."""

from __future__ import annotations

from typing import Any, Final

from trtllm_engine.contract import ServeRequest, engine_folder

from ..api import names
from ..api.deployment import LLMDeployment
from ..api.engine_options import Device
from ..resolve.defaults import Defaults
from ..resolve.resolution import Resolution
from ..resolve.revision import Frozen, revision_of
from . import pod
from .metadata import Manifest, compact, owned, owner_labels

PORT_NAME: Final = "http"
DRAIN_SECONDS: Final = 10
"""Endpoints lag behind readiness by seconds."""
STARTUP_SECONDS: Final = 1800
STARTUP_PERIOD: Final = 5
"""Seconds between looks at a server that loads."""
GRACE_SECONDS: Final = 60
"""Beyond the drain, for requests that run."""


def pod_template(deployment: LLMDeployment, resolution: Resolution, defaults: Defaults) -> dict[str, Any]:
    """The pod of every rank, without the group's ordinal. Raises `Refused` if the spec does not parse."""
    spec, key = deployment.valid_spec, resolution.engine_key
    mounts = [pod.store(key, read_only=True), pod.scratch(), pod.shared_memory()]
    drain = DRAIN_SECONDS if spec.serving.drain_seconds is None else spec.serving.drain_seconds
    request = ServeRequest(
        engine_key=key,
        engine=engine_folder(key),
        model_name=spec.serving.model_name or deployment.meta.name,
        device=(spec.serving.device or Device.AUTO).value,
        port=spec.serving_port,
        drain_seconds=drain,
        mapping=resolution.mapping,
    )
    container = pod.container(
        image=serving_image(deployment, resolution, defaults),
        command="serve",
        mounts=mounts,
        defaults=defaults,
        resources=_resources(deployment, resolution, defaults),
        environment={"HF_HUB_OFFLINE": "1"},
        variables=_rendezvous(deployment, resolution),
        ports=[{"name": PORT_NAME, "containerPort": spec.serving_port, "protocol": "TCP"}],
        **_probes(spec.serving.startup_seconds or STARTUP_SECONDS),
    )
    return {
        "metadata": {
            "labels": {**spec.pod_template.labels, **_labels(deployment, revision_of(deployment), key)},
            "annotations": {**spec.pod_template.annotations, **pod.request_annotation(request)},
        },
        "spec": pod.pod_spec(
            container,
            mounts=mounts,
            scheduling=pod.placement(spec),
            pull_secrets=(*defaults.image_pull_secrets, *spec.pod_template.image_pull_secrets),
            terminationGracePeriodSeconds=spec.pod_template.termination_grace_period_seconds or drain + GRACE_SECONDS,
            affinity=_a_node_each(deployment) if resolution.pods > 1 else None,
        ),
    }


def _rendezvous(deployment: LLMDeployment, resolution: Resolution) -> list[dict[str, Any]]:
    """How the pods of a group find each other, in the words of torch's launcher; one pod needs none.

    The leader is the group's pod 0, by the name that the headless Service gives it. The ordinal comes from a label,
    so that one frozen template serves every group.
    """
    if resolution.pods == 1:
        return []

    def label(name: str) -> dict[str, Any]:
        return {"fieldRef": {"fieldPath": f"metadata.labels['{name}']"}}

    name = deployment.meta.name
    return [
        {"name": "GROUP_RANK", "valueFrom": label(names.POD_INDEX_LABEL)},
        {"name": "GROUP_ORDINAL", "valueFrom": label(names.ORDINAL_LABEL)},
        {"name": "LOCAL_WORLD_SIZE", "value": str(resolution.mapping.world_size // resolution.pods)},
        {"name": "MASTER_ADDR", "value": f"{name}-$(GROUP_ORDINAL)-0.{names.headless_service(name)}"},
    ]


def serving_image(deployment: LLMDeployment, resolution: Resolution, defaults: Defaults) -> str:
    """The image that serves: the spec's, the operator's, else the one that built the engine."""
    return deployment.valid_spec.serving.image or defaults.serving_image or resolution.image


def statefulset(deployment: LLMDeployment, frozen: Frozen, ordinal: int) -> Manifest:
    """One group of a frozen revision. Its template is never changed: a group is deleted and made anew.

    The selector holds the revision, so that a group never adopts a pod of another one (I11).
    """
    labels = _labels(deployment, frozen.hash, frozen.resolution.engine_key) | {names.ORDINAL_LABEL: str(ordinal)}
    selected = (names.DEPLOYMENT_LABEL, names.REVISION_LABEL, names.ORDINAL_LABEL, names.ROLE_LABEL)
    metadata = frozen.template["metadata"]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": owned(deployment, names.group(deployment.meta.name, ordinal), labels),
        "spec": {
            "replicas": frozen.resolution.pods,
            "serviceName": names.headless_service(deployment.meta.name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {name: labels[name] for name in selected}},
            "template": {
                "metadata": {
                    **metadata,
                    "labels": {**metadata["labels"], names.ORDINAL_LABEL: str(ordinal)},
                },
                "spec": frozen.template["spec"],
            },
        },
    }


def _a_node_each(deployment: LLMDeployment) -> dict[str, Any]:
    """Each pod of a group has the share of a whole node; the label of the group is known only when it is made."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {names.DEPLOYMENT_LABEL: deployment.meta.name, names.ROLE_LABEL: "server"}},
        "matchLabelKeys": [names.REVISION_LABEL, names.ORDINAL_LABEL],
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _labels(deployment: LLMDeployment, revision: str, key: str) -> dict[str, str]:
    return {
        **owner_labels(deployment),
        names.REVISION_LABEL: revision,
        names.KEY_LABEL: names.key_label(key),
        names.ROLE_LABEL: "server",
    }


def _resources(deployment: LLMDeployment, resolution: Resolution, defaults: Defaults) -> dict[str, Any]:
    spec = deployment.valid_spec
    requests, limits = dict(spec.serving.resources.requests), dict(spec.serving.resources.limits)
    if resolution.gpus_per_pod:
        gpu = spec.gpu.resource_name or defaults.gpu_resource
        requests[gpu] = limits[gpu] = str(resolution.gpus_per_pod)
    return compact(requests=requests, limits=limits)


def _probes(startup_seconds: int) -> dict[str, Any]:
    """Nothing kills a server that loads within its budget: liveness counts only after the startup probe succeeded."""

    def get(path: str, **more: int) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": PORT_NAME}, "timeoutSeconds": 5, **more}

    return {
        "startupProbe": get(
            "/readyz", periodSeconds=STARTUP_PERIOD, failureThreshold=-(-startup_seconds // STARTUP_PERIOD)
        ),
        "readinessProbe": get("/readyz", periodSeconds=5, failureThreshold=2),
        "livenessProbe": get("/livez", periodSeconds=10, failureThreshold=6),
    }
