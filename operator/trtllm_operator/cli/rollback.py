"""`llmd rollback`: write what an old revision was, as an edit would."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..api import names
from ..api.deployment import LLMDeployment
from ..api.views import Meta
from ..reconcile.store import Object
from ..resolve.revision import UNSEEN, refresh_of, revision_of
from .cluster import UserClient, namespace_of, with_cluster
from .failure import BadInput
from .output import Screen
from .picture import deployment_object
from .steering import edit

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A revision that is kept."""

    revision: str
    number: int
    """Grows with the generation in which it was made."""
    spec: Json
    refreshed: str | None = None
    """When its spec was resolved anew, if it was."""


def rollback(name: str, to: str | None, *, namespace: str | None, kubeconfig: str | None) -> int:
    """1 if the object belongs to Git: the patch is printed. Raises `BadInput`."""
    where, screen = namespace_of(namespace, kubeconfig), Screen(sys.stdout)
    return with_cluster(kubeconfig, lambda client: _rollback(client, where, name, to, screen))


async def _rollback(client: UserClient, namespace: str, name: str, to: str | None, screen: Screen) -> int:
    obj = await deployment_object(client, namespace, name)
    deployment = LLMDeployment.of(obj)
    children = (await client.list("ControllerRevision", namespace)).items
    chosen = choose(deployment, list(records(deployment, children)), to)
    changes = difference(obj["spec"], restored(obj["spec"], chosen.spec, UNSEEN))
    refreshes = refresh_of(deployment) != chosen.refreshed
    if not changes and not refreshes:
        screen.line(f"{name} is as revision {chosen.revision} was")
        return 0
    if not await edit(client, obj, changes, {names.REFRESH_ANNOTATION: chosen.refreshed} if refreshes else {}):
        return 1
    screen.line(f"{name} goes back to revision {chosen.revision}:")
    for path, value in leaves(changes, "spec"):
        screen.line(f"  {path} {'removed' if value is None else json.dumps(value, ensure_ascii=False)}", indent=4)
    screen.line(f"see: llmd status {name} -w")
    return 0


def records(deployment: LLMDeployment, children: Sequence[Object]) -> Iterator[Record]:
    """Those of the deployment that hold a spec, whichever version of the operator wrote them."""
    for child in children:
        data = child.get("data")
        if Meta.of(child).controller_uid != deployment.meta.uid or not isinstance(data, Mapping):
            continue
        revision, spec = Meta.of(child).labels.get(names.REVISION_LABEL), data.get("spec")
        if revision and isinstance(spec, Mapping):
            number = int(child.get("revision", 0))
            yield Record(revision=revision, number=number, spec=spec, refreshed=data.get("refreshed"))


def choose(deployment: LLMDeployment, kept: Sequence[Record], to: str | None) -> Record:
    """The revision that `to` names or begins; without it what serves in place of the spec's, else the newest other.

    Raises `BadInput` with those that there are.
    """
    status = deployment.status
    now = revision_of(deployment) if deployment.spec is not None else status.target_revision
    others = sorted((r for r in kept if r.revision != now), key=lambda record: -record.number)
    known = ", ".join(record.revision for record in others)
    there = f"there are {known}" if known else "no other is kept; strategy.revisionHistoryLimit says how many are"
    if to is not None:
        found = [record for record in kept if record.revision.startswith(to)]
        if len(found) != 1:
            raise BadInput(
                f"{'no' if not found else 'more than one'} revision of {deployment.meta.name} is {to}: {there}"
            )
        return found[0]
    failed = status.failed_revision.revision if status.failed_revision else None
    serving = [record for record in others if record.revision == status.current_revision]
    good = [*serving, *(record for record in others if record.revision != failed)]
    if not good:
        raise BadInput(f"{deployment.meta.name} has no revision to go back to: {there}")
    return good[0]


def restored(current: Json, old: Json, unseen: Json) -> dict[str, Any]:
    """The old spec, with what no pod sees (`UNSEEN`: replicas, suspend, strategy, ...) as it is now."""
    spec: dict[str, Any] = {}
    for field in dict.fromkeys([*old, *current]):
        if field not in unseen or unseen[field] is None:
            source = current if field in unseen else old
            if field in source:
                spec[field] = source[field]
        elif inner := restored(current.get(field) or {}, old.get(field) or {}, unseen[field]):
            spec[field] = inner
    return spec


def difference(before: Json, after: Json) -> dict[str, Any]:
    """The JSON merge patch from one to the other."""
    patch: dict[str, Any] = {field: None for field in before if field not in after}
    for field, value in after.items():
        if field not in before:
            patch[field] = value
        elif isinstance(value, Mapping) and isinstance(before[field], Mapping):
            if inner := difference(before[field], value):
                patch[field] = inner
        elif value != before[field]:
            patch[field] = value
    return patch


def leaves(patch: Json, path: str) -> Iterator[tuple[str, Any]]:
    for field, value in patch.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.{field}")
        else:
            yield f"{path}.{field}", value
