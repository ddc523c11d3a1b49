"""What is known about the cluster: the newest seen version of every object, and nothing else.

The store knows keys, UIDs and resource versions; what an object means is none of its business. Reads cost
no API call, so a decision is made on one consistent picture.

Objects are never changed in place: `put` replaces the whole object, so what a reader holds stays as it was.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from trtllm_engine.contract import Progress

Object = dict[str, Any]
"""A Kubernetes object as JSON."""

Objects = list[Object]

TOMBSTONES: Final = 20_000
"""Deleted UIDs to remember. A late line arrives within seconds; what slips through is pruned by the next resync."""


class Key(NamedTuple):
    """Which object; `namespace` is empty for a cluster-scoped one."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def key_of(obj: Object) -> Key:
    """The key of an object that carries its kind."""
    meta = obj["metadata"]
    return Key(obj["kind"], meta.get("namespace", ""), meta["name"])


def uid_of(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def version_of(obj: Object) -> int:
    """The resource version; comparable as a number within one cluster, which Kubernetes promises since 1.35."""
    return int(obj["metadata"]["resourceVersion"])


class Store:
    """Objects by key, by controller owner and by a few labels.

    `labels` are those that `by_label` can be asked for.
    """

    def __init__(self, labels: Iterable[str] = ()) -> None:
        self._labels = tuple(labels)
        self._objects: dict[Key, Object] = {}
        self._index: defaultdict[Hashable, set[Key]] = defaultdict(set)
        self._tombstones: OrderedDict[str, int] = OrderedDict()
        self._progress: dict[Key, Progress] = {}

    def put(self, obj: Object) -> bool:
        """Keep the object if it is newer than what is known; False if it is not.

        An object under the same name with another UID replaces the known one when it is newer: the known one
        was deleted, and the line that said so was lost or is still to come.
        """
        key, uid, version = key_of(obj), uid_of(obj), version_of(obj)
        if version <= self._tombstones.get(uid, -1):
            return False
        known = self._objects.get(key)
        if known is not None:
            if version <= version_of(known):
                return False
            if uid_of(known) != uid:
                self._bury(uid_of(known), version)
                self._progress.pop(key, None)
            self._remove(key, known)
        self._objects[key] = obj
        for entry in self._entries(key, obj):
            self._index[entry].add(key)
        return True

    def delete(self, key: Key, uid: str, version: int) -> bool:
        """Forget the object with this UID; True if it was known.

        A line about this UID that is not newer than `version` is ignored from now on. A newer one counts: an
        object leaves a selected watch also when somebody takes its label off, and comes back with the label.
        """
        self._bury(uid, version)
        known = self._objects.get(key)
        if known is None or uid_of(known) != uid or version_of(known) > version:
            return False
        self._remove(key, known)
        self._progress.pop(key, None)
        return True

    def get(self, key: Key) -> Object | None:
        return self._objects.get(key)

    def list(self, kind: str, namespace: str | None = None) -> Objects:
        """All objects of a kind, in one namespace or (None) everywhere, ordered by namespace and name."""
        return self._pick((kind, namespace))

    def owned(self, uid: str) -> Objects:
        """The objects whose controller has this UID, ordered by kind, namespace and name."""
        return self._pick(("owner", uid))

    def by_label(self, kind: str, namespace: str | None, label: str, value: str) -> Objects:
        """Objects of a kind with this label. Raises `KeyError` for a label that the store does not index."""
        if label not in self._labels:
            raise KeyError(f"label {label} is not indexed; indexed are {', '.join(self._labels) or 'none'}")
        return self._pick((kind, namespace, label, value))

    def set_progress(self, key: Key, progress: Progress) -> None:
        """Remember what the program in a pod said last; forgotten together with the pod."""
        if key in self._objects:
            self._progress[key] = progress

    def progress(self, key: Key) -> Progress | None:
        return self._progress.get(key)

    def __len__(self) -> int:
        return len(self._objects)

    def _pick(self, entry: Hashable) -> Objects:
        return [self._objects[key] for key in sorted(self._index.get(entry, ()))]

    def _remove(self, key: Key, obj: Object) -> None:
        del self._objects[key]
        for entry in self._entries(key, obj):
            keys = self._index[entry]
            keys.discard(key)
            if not keys:
                del self._index[entry]

    def _bury(self, uid: str, version: int) -> None:
        self._tombstones[uid] = max(version, self._tombstones.get(uid, -1))
        self._tombstones.move_to_end(uid)
        if len(self._tombstones) > TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _entries(self, key: Key, obj: Object) -> Iterator[Hashable]:
        """Under what an object is filed; computed from the object, so that leaving undoes exactly what entering did."""
        yield (key.kind, None)
        yield (key.kind, key.namespace)
        meta = obj["metadata"]
        for owner in meta.get("ownerReferences") or ():
            if owner.get("controller"):
                yield ("owner", owner["uid"])
        labels = meta.get("labels") or {}
        for label in self._labels:
            if label in labels:
                yield (key.kind, None, label, labels[label])
                yield (key.kind, key.namespace, label, labels[label])
