"""The claim that holds one engine."""

from __future__ import annotations

from ..api import names
from ..api.engine import LLMEngine
from ..resolve.defaults import Defaults
from ..resolve.resolution import Resolution
from ..resolve.storage import engine_storage
from .metadata import Manifest, compact, unowned


def engine_claim(engine: LLMEngine, resolution: Resolution, defaults: Defaults) -> Manifest:
    """Without an owner: a claim that went with its engine would hang in Terminating while pods serve from it."""
    storage, key = engine.valid_spec.storage, resolution.engine_key
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": unowned(engine.meta.namespace, names.engine_claim(key), {names.KEY_LABEL: names.key_label(key)}),
        "spec": compact(
            accessModes=[mode.value for mode in storage.access_modes or defaults.access_modes],
            storageClassName=storage.storage_class_name or defaults.storage_class,
            resources={"requests": {"storage": storage.size or engine_storage(resolution)}},
        ),
    }
