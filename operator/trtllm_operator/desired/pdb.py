"""How many servers of a deployment may be taken away at once by whoever drains nodes."""

from __future__ import annotations

from ..api import names
from ..api.deployment import LLMDeployment
from .metadata import Manifest, owned
from .service import servers


def disruption_budget(deployment: LLMDeployment) -> Manifest:
    """One pod, and so one group: a pod is ready only while its whole group is. One that is not ready stops no drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owned(deployment, names.disruption_budget(deployment.meta.name)),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": servers(deployment)},
        },
    }
