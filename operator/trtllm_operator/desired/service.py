"""The two Services of a deployment."""

from __future__ import annotations

from typing import Any

from ..api import names
from ..api.deployment import LLMDeployment
from .metadata import Manifest, owned
from .statefulset import PORT_NAME


def headless(deployment: LLMDeployment) -> Manifest:
    """The address of every rank, ready or not: ranks must find each other before they can be ready."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": servers(deployment)}
    return _service(deployment, names.headless_service(deployment.meta.name), spec)


def leader(deployment: LLMDeployment, port: int) -> Manifest:
    """What clients talk to: the leaders of ready groups. The target port is a name, so revisions may differ in it."""
    spec = {
        "selector": leaders(deployment),
        "ports": [{"name": PORT_NAME, "port": port, "targetPort": PORT_NAME, "protocol": "TCP"}],
    }
    return _service(deployment, names.service(deployment.meta.name), spec)


def leaders(deployment: LLMDeployment) -> dict[str, str]:
    """Labels of one pod per replica."""
    return {**servers(deployment), names.POD_INDEX_LABEL: "0"}


def leader_selector(deployment: LLMDeployment) -> str:
    """`status.selector`: a scaler that counted every pod would overscale by the size of the group."""
    return ",".join(f"{name}={value}" for name, value in sorted(leaders(deployment).items()))


def servers(deployment: LLMDeployment) -> dict[str, str]:
    """Labels of every serving pod, of any revision."""
    return {names.DEPLOYMENT_LABEL: deployment.meta.name, names.ROLE_LABEL: "server"}


def _service(deployment: LLMDeployment, name: str, spec: dict[str, Any]) -> Manifest:
    return {"apiVersion": "v1", "kind": "Service", "metadata": owned(deployment, name), "spec": spec}
