"""`llmd retry`, `refresh`, `pause` and `resume`: small edits of an LLMDeployment, and a fresh start for what failed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ..api import names
from ..api.deployment import LLMDeployment
from ..api.engine import EnginePhase, LLMEngine
from ..api.views import JobView, Meta
from ..reconcile.store import Object
from .cluster import UserClient, namespace_of, with_cluster
from .output import Screen, to_yaml
from .picture import deployment_object, engine_of
from .portrait import blocking

GITOPS_LABELS: Final = {
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "objectset.rio.cattle.io/hash": "Fleet",
}
GITOPS_ANNOTATIONS: Final = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/installation-id": "Argo CD",
}
GITOPS_MANAGERS: Final = {
    "argocd": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "flux": "Flux",
    "fleetagent": "Fleet",
}
"""Beginnings of the names by which they write."""


def retry(name: str, *, namespace: str | None, kubeconfig: str | None) -> int:
    """Have what was given up tried once more. 1 if nothing was. Raises `BadInput`."""
    where, screen = namespace_of(namespace, kubeconfig), Screen(sys.stdout)
    return with_cluster(kubeconfig, lambda client: _retry(client, where, name, screen))


def refresh(name: str, *, namespace: str | None, kubeconfig: str | None) -> int:
    """Have the spec resolved anew. 1 if nothing was resolved yet. Raises `BadInput`."""
    where, screen = namespace_of(namespace, kubeconfig), Screen(sys.stdout)
    return with_cluster(kubeconfig, lambda client: _refresh(client, where, name, screen))


def set_paused(name: str, paused: bool, *, namespace: str | None, kubeconfig: str | None) -> int:
    """Set `strategy.paused`. 1 if the object belongs to Git. Raises `BadInput`."""
    where, screen = namespace_of(namespace, kubeconfig), Screen(sys.stdout)
    return with_cluster(kubeconfig, lambda client: _set_paused(client, where, name, paused, screen))


async def edit(
    client: UserClient, obj: Object, spec: Mapping[str, Any], annotations: Mapping[str, str | None] | None = None
) -> bool:
    """Merge `spec` into the object's, and annotations, which are not Git's; None removes one.

    False if the spec comes from Git: the patch is printed for there, nothing is written.
    Raises `Conflict` if somebody has changed the object since `obj` was read.
    """
    meta = Meta.of(obj)
    managers = await client.managers(LLMDeployment.KIND, meta.namespace, meta.name)
    if spec and (owner := git_owner(meta, managers)) is not None:
        screen = Screen(sys.stderr)
        screen.line(f"{meta.name} comes from Git, by {owner}, which would set it back: change it there.")
        screen.line("The patch is:")
        sys.stderr.flush()
        sys.stdout.write(to_yaml({"spec": spec}))
        return False
    metadata = {"resourceVersion": meta.resource_version, **({"annotations": annotations} if annotations else {})}
    changes = {"metadata": metadata, **({"spec": spec} if spec else {})}
    await client.patch(LLMDeployment.KIND, meta.namespace, meta.name, changes)
    return True


def git_owner(meta: Meta, managers: Iterable[str]) -> str | None:
    """Who keeps the object as it is in Git, by the marks that they leave."""
    marks = [GITOPS_LABELS.get(label) for label in meta.labels]
    marks += [GITOPS_ANNOTATIONS.get(annotation) for annotation in meta.annotations]
    marks += [owner for manager in managers for start, owner in GITOPS_MANAGERS.items() if manager.startswith(start)]
    return next((mark for mark in marks if mark is not None), None)


async def _set_paused(client: UserClient, namespace: str, name: str, paused: bool, screen: Screen) -> int:
    obj = await deployment_object(client, namespace, name)
    strategy: Mapping[str, Any] = obj["spec"].get("strategy") or {}
    if bool(strategy.get("paused")) is paused:
        screen.line(f"{name} is {'paused already' if paused else 'not paused'}")
        return 0
    if not await edit(client, obj, {"strategy": {"paused": True if paused else None}}):
        return 1
    text = "paused: what runs is kept running and scaled, a changed spec waits" if paused else "goes on"
    screen.line(f"{name} {text}")
    return 0


async def _retry(client: UserClient, namespace: str, name: str, screen: Screen) -> int:
    deployment = LLMDeployment.of(await deployment_object(client, namespace, name))
    failed, now = deployment.status.failed_revision, datetime.now(UTC)
    if failed is not None:
        # The operator compares whole seconds of its own clock: a moment that is behind its would be no request.
        await _ask(client, namespace, name, names.RETRY_ANNOTATION, max(now, failed.at))
        screen.line(f"revision {failed.revision} is rolled out once more; it had failed: {failed.message}")
        return 0
    engines = (await client.list(LLMEngine.KIND, namespace)).items
    engine = engine_of(deployment, map(LLMEngine.of, engines))
    if engine is not None and engine.status.phase is EnginePhase.FAILED:
        return await _build_again(client, engine, screen)
    for job in (await client.list("Job", namespace)).items:
        view = JobView.of(job)
        fetches = view.meta.labels.get(names.ROLE_LABEL) == "fetch"
        if fetches and view.failed and view.meta.controller_uid == deployment.meta.uid:
            await client.delete("Job", namespace, view.meta.name, uid=view.meta.uid)
            screen.line(f"the model is fetched once more; it had failed: {view.message or view.reason}")
            return 0
    why = blocking(deployment)
    screen.line(f"nothing of {name} was given up" + (f"; it is not ready: {why.reason}: {why.message}" if why else ""))
    return 1


async def _refresh(client: UserClient, namespace: str, name: str, screen: Screen) -> int:
    deployment = LLMDeployment.of(await deployment_object(client, namespace, name))
    frozen = deployment.status.target_revision
    if frozen is None:
        screen.line(f"nothing of {name} is resolved yet: that takes what the operator has by now anyway")
        return 1
    await _ask(client, namespace, name, names.REFRESH_ANNOTATION, datetime.now(UTC))
    screen.line(
        f"{name} is resolved anew with what the operator has by now, and rolled out as a changed spec is; "
        f"revision {frozen} serves until then"
    )
    screen.line(f"see: llmd status {name} -w")
    return 0


async def _ask(client: UserClient, namespace: str, name: str, annotation: str, when: datetime) -> None:
    """By an annotation that holds a moment: also an object that comes from Git keeps it."""
    changes = {"metadata": {"annotations": {annotation: f"{when:%Y-%m-%dT%H:%M:%SZ}"}}}
    await client.patch(LLMDeployment.KIND, namespace, name, changes)


async def _build_again(client: UserClient, engine: LLMEngine, screen: Screen) -> int:
    """Without its LLMEngine a failed build is forgotten; the operator makes it anew for whoever needs it."""
    meta, message = engine.meta, engine.status.message or "no message"
    if meta.labels.get(names.MANAGED_BY) != names.MANAGER:
        screen.line(
            f"LLMEngine {meta.name} failed, and it is not the operator's: delete it and apply it again; {message}"
        )
        return 1
    await client.delete(LLMEngine.KIND, meta.namespace, meta.name, uid=meta.uid)
    screen.line(f"engine {meta.name} is built once more; it had failed: {message}")
    return 0
