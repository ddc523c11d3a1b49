"""The claim that holds one engine."""

from __future__ import annotations

from ..api import names
from ..api.engine import LLMEngine
from ..api.views import Meta
from ..resolve.defaults import Defaults
from ..resolve.resolution import Resolution
from ..resolve.storage import engine_storage
from .metadata import Manifest, compact, unowned


def engine_claim(engine: LLMEngine, resolution: Resolution, defaults: Defaults) -> Manifest:
    """Without an owner: a claim that went with its engine would hang in Terminating while pods serve from it."""
    storage, key = engine.valid_spec.storage, resolution.engine_key
    metadata = unowned(engine.meta.namespace, names.engine_claim(key), {names.KEY_LABEL: names.key_label(key)})
    retention = engine.valid_spec.retention
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata | ({"annotations": {names.RETENTION_ANNOTATION: retention}} if retention else {}),
        "spec": compact(
            accessModes=[mode.value for mode in storage.access_modes or defaults.access_modes],
            storageClassName=storage.storage_class_name or defaults.storage_class,
            resources={"requests": {"storage": storage.size or engine_storage(resolution)}},
        ),
    }


def marked(claim: Meta, unreferenced_since: str) -> Manifest:
    """What is written on a claim that exists: since when nobody needs it."""
    metadata = unowned(claim.namespace, claim.name, {names.KEY_LABEL: claim.labels.get(names.KEY_LABEL, "")})
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata | {"annotations": {names.UNREFERENCED_ANNOTATION: unreferenced_since}},
    }
