"""Objects as the API server would send them, with what a test cares about."""

from __future__ import annotations

from typing import Any

from trtllm_operator.reconcile.store import Key, Object


def an_object(
    name: str = "a",
    version: int = 1,
    *,
    kind: str = "Pod",
    namespace: str = "default",
    uid: str = "",
    owner: str | None = None,
    labels: dict[str, str] | None = None,
) -> Object:
    """An object; its UID is its name unless another is given, `owner` is the UID of its controller."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or name,
        "resourceVersion": str(version),
        "labels": labels or {},
    }
    if owner is not None:
        meta["ownerReferences"] = [{"uid": owner, "controller": True}]
    return {"apiVersion": "v1", "kind": kind, "metadata": meta}


def a_key(name: str = "a", kind: str = "Pod") -> Key:
    return Key(kind, "default", name)
