"""Small objects that a real API server accepts."""

from __future__ import annotations

from typing import Any

from trtllm_operator.api.names import API_VERSION, MANAGED_BY, MANAGER
from trtllm_operator.reconcile.store import Object

OURS = {MANAGED_BY: MANAGER}
_POD_SPEC: dict[str, Any] = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "containers": [{"name": "main", "image": "registry.invalid/none"}],
}


def a_deployment(namespace: str, name: str = "llama") -> Object:
    """The smallest spec that is valid."""
    return {
        "apiVersion": API_VERSION,
        "kind": "LLMDeployment",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"model": "meta-llama/Llama-3.3-70B"},
    }


def a_job(namespace: str, name: str = "build", labels: dict[str, str] | None = None, suspend: bool = True) -> Object:
    """A Job that makes no pod as long as it is suspended."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": namespace, "name": name, "labels": OURS if labels is None else labels},
        "spec": {"suspend": suspend, "template": {"spec": _POD_SPEC}},
    }


def a_stateful_set(namespace: str, name: str = "llama-0", replicas: int = 0) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"namespace": namespace, "name": name, "labels": OURS},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": _POD_SPEC["containers"]},
            },
        },
    }


def a_service(namespace: str, name: str = "llama", labels: dict[str, str] | None = None) -> Object:
    """No controller touches it, so its version changes only when somebody writes."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": name, "labels": OURS if labels is None else labels},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}]},
    }
