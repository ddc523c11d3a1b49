"""What is cleared away beside groups: pods whose node is lost, and the records of revisions that nobody needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from ..api.placement import NodeView
from ..api.views import Meta, PodView
from .plan import Delete
from .snapshot import DeploymentSnapshot

NODE_LOST: Final = timedelta(seconds=60)
"""How long a node must have been not ready. Serving pods hold no state, and what a build has not published under its
own name does not exist, so nothing is lost even if such a pod still runs somewhere."""
HISTORY: Final = 10
"""Records of old revisions that are kept where the spec says nothing."""


def lost_pods(pods: Iterable[PodView], nodes: Iterable[NodeView], now: datetime) -> Iterable[Delete]:
    """Nobody on the node can confirm the end of these pods, and their successors wait for it."""
    for pod, lost in _on_unready_nodes(pods, nodes):
        if now >= lost + NODE_LOST:
            yield Delete(
                api_version="v1",
                kind="Pod",
                namespace=pod.meta.namespace,
                name=pod.meta.name,
                uid=pod.meta.uid,
                owner_uid=pod.meta.controller_uid or "",
                propagation="Background",
                force=True,
                reason=f"node {pod.node} has not been ready since {lost:%H:%MZ}; the pod is made anew elsewhere",
            )


def next_loss(pods: Iterable[PodView], nodes: Iterable[NodeView], now: datetime) -> datetime | None:
    """When a node that is not ready now will count as lost."""
    ends = (lost + NODE_LOST for _, lost in _on_unready_nodes(pods, nodes))
    return min((end for end in ends if end > now), default=None)


def old_records(snapshot: DeploymentSnapshot, used: Collection[str | None]) -> Iterable[Delete]:
    """The oldest beyond the limit, of those that are not in use."""
    spec, deployment = snapshot.deployment.spec, snapshot.deployment.meta
    if spec is None:
        return
    limit = spec.strategy.revision_history_limit
    spare = sorted((meta for name, meta in snapshot.records.items() if name not in used), key=_age, reverse=True)
    for meta in spare[HISTORY if limit is None else limit :]:
        yield Delete(
            api_version="apps/v1",
            kind="ControllerRevision",
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            owner_uid=deployment.uid,
            propagation="Background",
            reason="beyond strategy.revisionHistoryLimit",
        )


def _on_unready_nodes(pods: Iterable[PodView], nodes: Iterable[NodeView]) -> Iterable[tuple[PodView, datetime]]:
    since = {node.name: node.unready_since for node in nodes}
    for pod in pods:
        lost = since.get(pod.node or "")
        if lost is not None and pod.phase not in ("Succeeded", "Failed"):
            yield pod, lost


def _age(meta: Meta) -> tuple[datetime, str]:
    return meta.created or datetime.min.replace(tzinfo=UTC), meta.name
