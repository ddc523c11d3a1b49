"""The claim that caches the hub models of a namespace."""

from __future__ import annotations

from ..api import names
from ..resolve.defaults import Defaults
from .metadata import Manifest, compact, unowned


def cache_claim(namespace: str, defaults: Defaults) -> Manifest:
    """One per namespace, shared by all who fetch."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": unowned(namespace, names.cache_claim()),
        "spec": compact(
            accessModes=[mode.value for mode in defaults.access_modes],
            storageClassName=defaults.cache_storage_class,
            resources={"requests": {"storage": defaults.cache_size}},
        ),
    }
