"""What all our pods have in common: no privilege, no token, a read-only root, the request as a file."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trtllm_engine.contract import CACHE_MOUNT, MODELS_MOUNT, REQUEST_FILE, STORE_MOUNT, Message

from ..api import names
from ..api.pods import LocalReference, ModelVolume, Scheduling
from ..resolve import projection
from ..resolve.defaults import Defaults
from ..resolve.projection import Spec
from .metadata import compact

Json = dict[str, Any]

CONTAINER: Final = "engine"
UID: Final = 10001
"""User and group of every pod, so that one may read what another wrote on a shared claim."""
GPU_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
"""Set on nodes by NVIDIA's GPU feature discovery."""

POD_SECURITY: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "runAsUser": UID,
    "runAsGroup": UID,
    "fsGroup": UID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume and where a pod sees it."""

    name: str
    path: str
    source: Json
    read_only: bool = False

    @property
    def volume(self) -> Json:
        return {"name": self.name, **self.source}

    @property
    def mount(self) -> Json:
        return compact(name=self.name, mountPath=self.path, readOnly=self.read_only or None)


def models(volume: ModelVolume) -> Mount:
    """The user's models. Read-only also as a volume, or the kubelet would change the files' group to ours."""
    source = {"claimName": volume.persistent_volume_claim.claim_name, "readOnly": True}
    return Mount("models", MODELS_MOUNT, {"persistentVolumeClaim": source}, read_only=True)


def cache(*, read_only: bool) -> Mount:
    """The namespace's cache of hub models."""
    source = {"persistentVolumeClaim": {"claimName": names.cache_claim()}}
    return Mount("cache", CACHE_MOUNT, source, read_only=read_only)


def store(key: str, *, read_only: bool) -> Mount:
    """The engine with this key."""
    source = {"persistentVolumeClaim": {"claimName": names.engine_claim(key)}}
    return Mount("store", STORE_MOUNT, source, read_only=read_only)


def model(spec: Spec, *, read_only_cache: bool) -> Mount:
    """Where the model is: on the user's volume, or in the cache."""
    return models(spec.model_volume) if spec.model_volume else cache(read_only=read_only_cache)


def scratch() -> Mount:
    return Mount("tmp", "/tmp", {"emptyDir": {}})


def shared_memory() -> Mount:
    """For the processes of one pod; the runtime's default of 64 MiB is too small for them."""
    return Mount("shm", "/dev/shm", {"emptyDir": {"medium": "Memory"}})


def _request() -> Mount:
    item = {
        "path": posixpath.basename(REQUEST_FILE),
        "fieldRef": {"fieldPath": f"metadata.annotations['{names.REQUEST_ANNOTATION}']"},
    }
    return Mount("request", posixpath.dirname(REQUEST_FILE), {"downwardAPI": {"items": [item]}}, read_only=True)


def request_annotation(request: Message) -> dict[str, str]:
    """The request as the pod template carries it."""
    return {names.REQUEST_ANNOTATION: request.to_json()}


def placement(spec: Spec) -> Scheduling:
    """Where every pod of a spec runs, GPU or not: a volume that binds late must land where its later users can run."""
    product = projection.options(spec).target.gpu_product
    selector = {**spec.scheduling.node_selector, **({GPU_PRODUCT_LABEL: product} if product else {})}
    return spec.scheduling.model_copy(update={"node_selector": selector})


def container(
    *,
    image: str,
    command: str,
    mounts: Sequence[Mount],
    defaults: Defaults,
    resources: Json,
    environment: Mapping[str, str] | None = None,
    variables: Sequence[Json] = (),
    **more: Any,
) -> Json:
    """The one container; `command` is the subcommand of the image's entrypoint. `variables`: those of the environment
    that are not plain text, or refer to others. `more`: ports and probes."""
    plain = [{"name": name, "value": value} for name, value in {"HOME": "/tmp", **(environment or {})}.items()]
    return compact(
        name=CONTAINER,
        image=image,
        imagePullPolicy=defaults.image_pull_policy,
        args=[command],
        env=[*plain, *variables],
        resources=resources,
        securityContext=dict(CONTAINER_SECURITY),
        terminationMessagePolicy="File",
        volumeMounts=[mount.mount for mount in (*mounts, _request())],
        **more,
    )


def pod_spec(
    container: Json,
    *,
    mounts: Sequence[Mount],
    scheduling: Scheduling,
    pull_secrets: Sequence[LocalReference],
    **more: Any,
) -> Json:
    """A pod's spec around its container. `more`: restart policy, grace period."""
    return compact(
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        securityContext=dict(POD_SECURITY),
        containers=[container],
        volumes=[mount.volume for mount in (*mounts, _request())],
        nodeSelector=dict(scheduling.node_selector),
        tolerations=[toleration.to_json() for toleration in scheduling.tolerations],
        priorityClassName=scheduling.priority_class_name,
        imagePullSecrets=[secret.to_json() for secret in pull_secrets],
        **more,
    )
