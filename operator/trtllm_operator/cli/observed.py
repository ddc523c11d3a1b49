"""What is in the cluster already, of one LLMDeployment and its namespace. Only reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trtllm_engine.contract import ContractError

from ..api.deployment import LLMDeployment
from ..api.engine import LLMEngine
from ..api.nodes import NodeFacts
from ..api.views import GroupView, Meta
from ..cluster.client import Client
from ..cluster.errors import Forbidden
from ..resolve.revision import Frozen
from .cluster import with_cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One deployment, or none of its name, and the engines of its namespace."""

    deployment: LLMDeployment | None = None
    revisions: Mapping[str, Frozen] = field(default_factory=dict)
    """What was frozen, by revision hash."""
    groups: tuple[GroupView, ...] = ()
    engines: tuple[LLMEngine, ...] = ()
    nodes: tuple[NodeFacts, ...] | None = None
    """None: they may not be read."""


def observe(namespace: str, name: str, *, resource: str, kubeconfig: str | None) -> Observed:
    """Read the cluster; `resource` stands for a GPU. Raises `BadInput` if there is no way to it or it refuses."""
    return with_cluster(kubeconfig, lambda client: read(client, namespace, name, resource))


async def read(client: Client, namespace: str, name: str, resource: str) -> Observed:
    """Raises `ClusterError`; nodes that may not be read are left out."""
    nodes = await _nodes(client, resource)
    engines = tuple(LLMEngine.of(obj) for obj in (await client.list(LLMEngine.KIND, namespace)).items)
    obj = await client.get(LLMDeployment.KIND, namespace, name)
    if obj is None:
        return Observed(engines=engines, nodes=nodes)
    uid = Meta.of(obj).uid
    revisions = {}
    for child in (await client.list("ControllerRevision", namespace)).items:
        if Meta.of(child).controller_uid != uid:
            continue
        try:
            frozen = Frozen.from_data(child["data"])
        except ContractError:
            # Of another version of the operator: nothing can be compared with it.
            continue
        revisions[frozen.hash] = frozen
    groups = [GroupView.of(child) for child in (await client.list("StatefulSet", namespace)).items]
    return Observed(
        deployment=LLMDeployment.of(obj),
        revisions=revisions,
        groups=tuple(group for group in groups if group.meta.controller_uid == uid),
        engines=engines,
        nodes=nodes,
    )


async def _nodes(client: Client, resource: str) -> tuple[NodeFacts, ...] | None:
    try:
        return tuple(NodeFacts.of(node, resource) for node in (await client.list("Node")).items)
    except Forbidden:
        return None
