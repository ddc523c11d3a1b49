"""Nodes without a machine: kwok plays their kubelets, on a control plane that is real, scheduler included.

A pod that the scheduler puts on such a node moves on as the stages say; no container runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.binaries import binary
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_until

Json = dict[str, Any]

KWOK: Final = "kwok"
API_VERSION: Final = "kwok.x-k8s.io/v1alpha1"
FAKE: Final = "kwok.x-k8s.io/node"
HEARTBEAT_SECONDS: Final = 5


def stage(name: str, kind: str, conditions: Sequence[tuple[str, str, Sequence[str]]], **following: Any) -> Json:
    """A step in the life of an object of `kind`: when its fields fulfil the conditions, `following` happens.

    A condition is a jq path, an operator (In, NotIn, Exists, DoesNotExist) and its values.
    """
    expressions: list[Json] = [
        {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
        for key, operator, values in conditions
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            "next": following,
        },
    }


READY_NODE: Final = """
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
{{ end }}
"""
NODE_STAGES: Final = (
    stage(
        "node-ready",
        "Node",
        [('.status.conditions.[] | select( .type == "Ready" ) | .status', "NotIn", ["True"])],
        statusTemplate=READY_NODE,
    ),
)


def start(cluster: Cluster, stages: Sequence[Json]) -> None:
    """Start kwok beside a cluster; `stages` say what becomes of its pods."""
    file = cluster.folder / "stages.yaml"
    file.write_text(yaml.safe_dump_all([*NODE_STAGES, *stages]))
    argv = [
        *(str(binary(KWOK)), f"--kubeconfig={cluster.kubeconfig}", f"--config={file}", "--enable-crds="),
        *("--manage-all-nodes=false", f"--manage-nodes-with-annotation-selector={FAKE}=fake"),
        *("--node-lease-duration-seconds=40", "--server-address=", "--tls-cert-file=", "--tls-private-key-file="),
    ]
    cluster.processes.start(KWOK, argv)


def add_node(cluster: Cluster, name: str, labels: Json, amounts: Json) -> None:
    """Add a node and wait until pods may go there; `amounts` are what it has of each resource."""
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", **amounts}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}, "annotations": {FAKE: "fake"}},
        "status": {"allocatable": capacity, "capacity": capacity},
    }
    # A new object's status is kept for nodes, unlike for most kinds.
    cluster.kubectl("create", "-f", "-", input=json.dumps(node))
    wait_until(lambda: _is_ready(cluster, name), f"node {name} to be ready", 30)


def remove_node(cluster: Cluster, name: str) -> None:
    """The machine is gone for good."""
    cluster.kubectl("delete", "node", name)


def log(cluster: Cluster) -> Path:
    """What kwok says."""
    return cluster.processes.log(KWOK)


def _is_ready(cluster: Cluster, name: str) -> bool:
    node = json.loads(cluster.kubectl("get", "node", name, "-o", "json").stdout)
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
    return ready and not any(t["key"].startswith("node.kubernetes.io/") for t in node["spec"].get("taints", ()))
