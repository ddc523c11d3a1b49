"""One deployment with everything that belongs to it, as it is now. Only reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from trtllm_engine.contract import Progress

from ..api import names
from ..api.deployment import LLMDeployment
from ..api.engine import EnginePhase, LLMEngine
from ..api.views import GroupView, Meta, PodView
from ..cluster.build_logs import LIMIT_BYTES, TAIL_LINES, last_progress
from ..cluster.errors import ClusterError
from ..reconcile.store import Object
from .cluster import UserClient
from .failure import BadInput

AT_ONCE: Final = 8
"""Logs read at the same time."""
OVER: Final = ("Succeeded", "Failed")
"""Phases of a pod that does nothing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a person looks at."""

    deployment: LLMDeployment
    engine: LLMEngine | None = None
    """Of the revision that the spec asks for."""
    groups: tuple[GroupView, ...] = ()
    pods: tuple[PodView, ...] = ()
    """Of the groups, and those that fetch the model or build the engine."""
    progress: Mapping[str, Progress] = field(default_factory=dict)
    """The last words of pods that work or load, by the pod's name."""

    def pods_of(self, group: GroupView) -> tuple[PodView, ...]:
        """By rank order."""
        ours = [pod for pod in self.pods if pod.meta.controller_uid == group.meta.uid]
        return tuple(sorted(ours, key=lambda pod: pod.index))

    def fetching(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if role(pod) == "fetch")

    def building(self) -> tuple[PodView, ...]:
        """One pod per rank, the youngest: a rank that was tried again has several."""
        newest: dict[int, PodView] = {}
        pods = [pod for pod in self.pods if role(pod) == "build"]
        for pod in sorted(pods, key=lambda p: (p.meta.created is not None, p.meta.created)):
            newest[pod.index] = pod
        return tuple(newest[index] for index in sorted(newest))


def role(pod: PodView) -> str:
    return pod.meta.labels.get(names.ROLE_LABEL, "")


async def look(client: UserClient, namespace: str, name: str) -> Picture:
    """Without the pods of fetches and builds that are done. Raises as `family` does."""
    whole = await family(client, namespace, name)
    pods = tuple(pod for pod in whole.pods if role(pod) == "server" or _at_work(pod, whole.deployment))
    return replace(whole, pods=pods, progress=await _progress(client, pods))


async def family(client: UserClient, namespace: str, name: str) -> Picture:
    """With every pod that is there for it, done or not. Raises `BadInput` if there is no such deployment, and
    `ClusterError`."""
    obj, engines, sets, pods = await asyncio.gather(
        deployment_object(client, namespace, name),
        client.list(LLMEngine.KIND, namespace),
        client.list("StatefulSet", namespace),
        client.list("Pod", namespace),
    )
    deployment = LLMDeployment.of(obj)
    groups = [group for group in map(GroupView.of, sets.items) if group.meta.controller_uid == deployment.meta.uid]
    uids = {group.meta.uid for group in groups}
    return Picture(
        deployment=deployment,
        engine=engine_of(deployment, map(LLMEngine.of, engines.items)),
        groups=tuple(sorted(groups, key=lambda group: group.ordinal)),
        pods=tuple(
            pod for pod in map(PodView.of, pods.items) if pod.meta.controller_uid in uids or _works_for(pod, deployment)
        ),
    )


async def deployment_object(client: UserClient, namespace: str, name: str) -> Object:
    """Raises `BadInput`, with the names that there are, if this is none of them."""
    obj = await client.get(LLMDeployment.KIND, namespace, name)
    if obj is not None:
        return obj
    there = sorted(Meta.of(other).name for other in (await client.list(LLMDeployment.KIND, namespace)).items)
    known = f"there are {', '.join(there)}" if there else "there are none; another namespace is chosen with -n"
    raise BadInput(f"no LLMDeployment {name} in namespace {namespace}: {known}")


def engine_of(deployment: LLMDeployment, engines: Iterable[LLMEngine]) -> LLMEngine | None:
    """The one that the status names; one with the same key may stand in for it."""
    reference = deployment.status.engine
    if reference is None:
        return None
    there = list(engines)
    named = [engine for engine in there if engine.meta.name == reference.name]
    same = [engine for engine in there if reference.key is not None and engine.status.key == reference.key]
    return next(iter([*named, *same]), None)


def _works_for(pod: PodView, deployment: LLMDeployment) -> bool:
    """Whether the pod fetches the deployment's model, or builds the engine with its key, whoever asked first."""
    labels, engine = pod.meta.labels, deployment.status.engine
    if role(pod) == "fetch":
        return labels.get(names.DEPLOYMENT_LABEL) == names.owner_label(deployment.meta.name)
    key = names.key_label(engine.key) if engine is not None and engine.key else None
    return role(pod) == "build" and key is not None and labels.get(names.KEY_LABEL) == key


def _at_work(pod: PodView, deployment: LLMDeployment) -> bool:
    """A rank that is done belongs to the picture for as long as the others build."""
    engine = deployment.status.engine
    if role(pod) == "build":
        return engine is None or engine.state != EnginePhase.READY
    return pod.phase not in OVER


async def _progress(client: UserClient, pods: Iterable[PodView]) -> Mapping[str, Progress]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def read(pod: PodView) -> tuple[str, Progress | None]:
        async with gate:
            try:
                log = await client.pod_log(
                    pod.meta.namespace, pod.meta.name, tail_lines=TAIL_LINES, limit_bytes=LIMIT_BYTES
                )
            except ClusterError:
                # A soft fact: without the right to read logs, or between two containers, there is no bar.
                return pod.meta.name, None
        return pod.meta.name, last_progress(log)

    found = await asyncio.gather(*(read(pod) for pod in pods if pod.running_since is not None and not pod.ready))
    return {name: line for name, line in found if line is not None}
