"""The first thing in which a live object differs from what we want; it becomes the reason that users read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..api.quantity import amount

QUANTITIES: Final = ("requests", "limits")
"""Objects whose values are quantities: the API server may write them back in another unit."""

LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "port"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Lists that are maps to the API server: by what their entries are told apart. It keeps entries that others added,
so to apply ours again on their account would never end."""


class Entry(NamedTuple):
    """Part of a path: an entry of such a list."""

    key: str


Path = tuple[str | int | Entry, ...]


def first_difference(desired: Any, live: Any) -> str | None:
    """For example `spec.template.spec.containers[0].image: "a" -> "b"` (live -> desired), or None.

    Only fields in `desired` count: what others added to the live object is theirs. So are entries that they added to
    a list whose entries have names (`LIST_KEYS`); other lists count by index and length. An empty object or list
    equals an absent one, because the API server drops it.
    """
    return _differ(desired, live, ())


def _differ(desired: Any, live: Any, path: Path) -> str | None:
    if desired in ({}, []) and live is None:
        return None
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        pairs = [(name, value, live.get(name)) for name, value in desired.items()]
        return next((found for n, d, v in pairs if (found := _differ(d, v, (*path, n)))), None)
    if isinstance(desired, list | tuple) and isinstance(live, list | tuple):
        if (key := _list_key(path, desired, live)) is not None:
            theirs = {entry[key]: entry for entry in live}
            entries = [(Entry(str(entry[key])), entry, theirs.get(entry[key])) for entry in desired]
            return next((found for e, d, v in entries if (found := _differ(d, v, (*path, e)))), None)
        if len(desired) != len(live):
            return f"{_shown_path(path)}: {len(live)} -> {len(desired)} items"
        items = enumerate(zip(desired, live, strict=True))
        return next((found for i, (d, v) in items if (found := _differ(d, v, (*path, i)))), None)
    if desired == live or (_is_quantity(path) and _same_amount(desired, live)):
        return None
    return f"{_shown_path(path)}: {_shown(live)} -> {_shown(desired)}"


def _list_key(path: Path, desired: Sequence[Any], live: Sequence[Any]) -> str | None:
    """What the entries are told apart by; None: by their place."""
    names = LIST_KEYS.get(path[-1], ()) if path and isinstance(path[-1], str) else ()
    entries = [*desired, *live]
    return next((n for n in names if all(isinstance(entry, Mapping) and n in entry for entry in entries)), None)


def _is_quantity(path: Path) -> bool:
    return len(path) > 1 and path[-2] in QUANTITIES


def _same_amount(desired: object, live: object) -> bool:
    number = amount(desired)
    return number is not None and number == amount(live)


def _shown_path(path: Path) -> str:
    text = ""
    for part in path:
        if isinstance(part, Entry):
            text += f"[{part.key}]"
        elif isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z0-9]+", part):
            text += f".{part}"
        else:
            text += f'["{part}"]'
    return text.removeprefix(".")


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 120 else text[:117] + "..."
