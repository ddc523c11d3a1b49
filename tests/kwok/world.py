"""A namespace over fake nodes, in the words of a test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.cluster import fake_nodes
from tests.cluster.cluster import Cluster
from tests.node.world import Namespace, Object, deployment
from trtllm_operator.api.names import REVISION_LABEL, ROLE_LABEL

GPUS_PER_NODE: Final = 8
_NUMBERS: Final = itertools.count(1)
"""A name is used once: what plays the nodes goes by names, and would take a new one for the one that went."""
H100: Final = "NVIDIA-H100-80GB-HBM3"
L4: Final = "NVIDIA-L4"
_LABELS: Final = {
    H100: {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0"},
    L4: {"nvidia.com/gpu.memory": "23034", "nvidia.com/gpu.compute.major": "8", "nvidia.com/gpu.compute.minor": "9"},
}


@dataclass
class Nodes:
    """The fake nodes of one test."""

    cluster: Cluster
    _names: list[str] = field(default_factory=list)

    def add(self, count: int, product: str = H100, gpus: int = GPUS_PER_NODE) -> list[str]:
        names = [f"node-{next(_NUMBERS)}" for _ in range(count)]
        for name in names:
            labels = {"nvidia.com/gpu.product": product, **_LABELS[product]}
            fake_nodes.add_node(self.cluster, name, labels, {"nvidia.com/gpu": str(gpus)})
            self._names.append(name)
        return names

    def remove_all(self) -> None:
        while self._names:
            fake_nodes.remove_node(self.cluster, self._names.pop())


class World(Namespace):
    """Reads what the tests of groups ask about."""

    def delete(self) -> None:
        """Returns when all is gone: without their nodes, nobody would end the pods."""
        self.kubectl("delete", "namespace", self.name, "--timeout=60s")

    def groups(self) -> Iterator[Object]:
        """Those that nobody deletes."""
        return (s for s in self.list("statefulset") if "deletionTimestamp" not in s["metadata"])

    def revisions(self) -> set[str]:
        return {s["metadata"]["labels"][REVISION_LABEL] for s in self.groups()}

    def servers(self) -> list[Object]:
        """The pods of all groups."""
        return [pod for pod in self.list("pod") if pod["metadata"]["labels"].get(ROLE_LABEL) == "server"]


def two_nodes(name: str = "wide", **spec: Any) -> Object:
    """A deployment whose replica takes sixteen GPUs: eight tensor ranks on each of two nodes, as two stages."""
    base: dict[str, Any] = {
        "tensorParallelSize": 8,
        "pipelineParallelSize": 2,
        "gpusPerNode": GPUS_PER_NODE,
        "engine": {"toolchain": "torch", "storage": {"size": "1Gi", "accessModes": ["ReadWriteMany"]}},
    }
    return deployment(name, **base | spec)
