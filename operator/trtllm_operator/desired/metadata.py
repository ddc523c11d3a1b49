"""Metadata of what we make: names, labels, and whom it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..api import names
from ..api.deployment import LLMDeployment
from ..api.engine import LLMEngine

Manifest = dict[str, Any]
Owner = LLMDeployment | LLMEngine


def compact(**fields: Any) -> dict[str, Any]:
    """The fields that say something: None, empty lists and empty objects are left out, as the API server does."""
    return {name: value for name, value in fields.items() if value is not None and value != [] and value != {}}


def owner_labels(owner: Owner) -> dict[str, str]:
    """Selects what belongs to an object of ours."""
    label = names.DEPLOYMENT_LABEL if isinstance(owner, LLMDeployment) else names.ENGINE_LABEL
    return {names.MANAGED_BY: names.MANAGER, label: names.owner_label(owner.meta.name)}


def owned(owner: Owner, name: str, labels: Mapping[str, str] | None = None) -> Manifest:
    """Metadata of a child: deleted with its owner, and foreground deletion of the owner waits for it."""
    return {
        "name": name,
        "namespace": owner.meta.namespace,
        "labels": {**owner_labels(owner), **(labels or {})},
        "ownerReferences": [
            {
                "apiVersion": names.API_VERSION,
                "kind": owner.KIND,
                "name": owner.meta.name,
                "uid": owner.meta.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def unowned(namespace: str, name: str, labels: Mapping[str, str] | None = None) -> Manifest:
    """Metadata of what outlives whoever asked for it: claims and engines. Only retention deletes them."""
    return {"name": name, "namespace": namespace, "labels": {names.MANAGED_BY: names.MANAGER, **(labels or {})}}
