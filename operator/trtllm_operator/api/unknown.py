"""What to say about a key that is not known where it stands: its right name, or the place where it belongs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from .left_out import LEFT_OUT
from .spellings import IMPLIED, MOVED, NO_PLACE, SIMILAR, SPELLINGS, WRAPPERS, camel_path, plain, plain_path
from .tree import Part, Place, aliases, closed_values, place, sections, tag

MOST_NAMES: Final = 16
"""Of a section, in a hint: more are not read."""
MOST_PLACES: Final = 3


def unknown_key(root: type[BaseModel], loc: Sequence[Part], where: str, value: Any) -> str:
    """The hint for the key at the end of `loc`, below `root`, which lies at `where`; `value` is what is written."""
    here, key = place(root, loc[:-1]), str(loc[-1])
    known = sorted(_fields(here.models))
    section = [str(part) for part in here.parts if isinstance(part, str)]
    same = [name for name in known if plain(name) == plain(key)]
    if same:
        return f"it is spelled {same[0]}: fields are in camelCase" if _joined(key) else f"did you mean {same[0]}?"
    if not section and (said := _said_of(root, key)):
        return said
    translated = {name: _looked_up(_SAME, root, [key, name]) for name in _keys(value)}
    if any(translated.values()):
        return "; ".join(f"{name} is called {where}.{path} here" for name, path in translated.items() if path)
    if path := _looked_up(_SAME, root, [*section, key]):
        return f"it is called {where}.{path} here"
    if plain(key) in _WRAPPERS:
        return f"what is in it stands directly in {where}"
    if reason := _NO_PLACE.get(plain(key)):
        return f"a spec cannot say it: {reason}"
    if reason := _LEFT_OUT.get(plain(key)):
        return f"it is left out: {reason}"
    near = difflib.get_close_matches(key, known, n=1)
    if owner := _owner(root, section, here, key):
        return owner
    if homes := _homes(root, section, key):
        return f"it belongs in {' or '.join(_home(where, home, key) for home in homes)}" + (
            f"; or did you mean {near[0]}?" if near else ""
        )
    if path := _looked_up(_SIMILAR, root, [key]):
        return f"the nearest is {where}.{path}"
    if near:
        return f"did you mean {near[0]}?"
    return f"known are {', '.join(known)}" if len(known) <= MOST_NAMES else _far(root, where, key)


def near_value(at: Place, value: Any) -> str | None:
    """The allowed value that is probably meant, if there is one."""
    allowed = closed_values(at.annotation)
    if not isinstance(value, str) or not allowed:
        return None
    same = [option for option in allowed if plain(option) == plain(value)]
    words = _WORDS.get(_plain_parts(at.parts), {})
    meant = [*same, *(word for word in (words.get(value.lower()),) if word in allowed)]
    return next(iter(meant or difflib.get_close_matches(value, allowed, n=1, cutoff=0.75)), None)


def _plain_parts(parts: Sequence[Part]) -> str:
    return ".".join(plain(part) for part in parts if isinstance(part, str))


_WRAPPERS: Final = frozenset(map(plain, WRAPPERS))
_SAME: Final = {plain_path(name): camel_path(path) for name, path in MOVED.items()}
_SIMILAR: Final = {
    plain_path(name): camel_path(path)
    for name, path in (*SIMILAR.items(), *((section, implied) for section, (implied, _) in IMPLIED.items()))
}
_NO_PLACE: Final = {plain(name): reason for name, reason in NO_PLACE.items()}
_LEFT_OUT: Final = {plain(path.split(".")[-1]): reason for path, reason in LEFT_OUT.items()}
_WORDS: Final = {plain_path(path): words for path, words in SPELLINGS.items()}


def _joined(key: str) -> bool:
    return "_" in key or "-" in key


def _keys(value: Any) -> list[str]:
    return [str(key) for key in value] if isinstance(value, Mapping) else []


def _fields(models: Sequence[type[BaseModel]]) -> set[str]:
    return {name for model in models for name in aliases(model)}


def _said_of(root: type[BaseModel], key: str) -> str | None:
    """What the kind itself says about a field of another kind."""
    elsewhere: Mapping[str, str] = getattr(root, "ELSEWHERE", {})
    return next((said for name, said in elsewhere.items() if plain(name) == plain(key)), None)


def _looked_up(names: Mapping[str, str], root: type[BaseModel], path: Sequence[str]) -> str | None:
    """Another name by its longest end that is known, if the field is below `root`."""
    parts = [plain(part) for part in path]
    ends = (".".join(parts[start:]) for start in range(len(parts)))
    found = next((names[end] for end in ends if end in names), None)
    return found if found and found in _paths(root) else None


def _owner(root: type[BaseModel], section: Sequence[str], here: Place, key: str) -> str | None:
    """A field of another type of the same union."""
    chosen = tag(here.models[0]) if len(here.models) == 1 else None
    if chosen is None:
        return None
    field, kind = chosen
    owners = [
        other[1]
        for path, model in sections(root)
        if list(path) == list(section) and plain(key) in map(plain, aliases(model)) and (other := tag(model))
    ]
    if not owners:
        return None
    own = ", ".join(sorted(_fields(here.models) - {field}))
    return f"it belongs to {field} {' or '.join(owners)}; remove it, or change {field}: {kind} has {own}"


def _homes(root: type[BaseModel], section: Sequence[str], key: str) -> list[tuple[str, ...]]:
    """Paths of the fields with this name in other sections, the nearest to the top first."""
    wanted, here = plain(key), tuple(section)
    found = {(*path, name): None for path, name in _names(root) if plain(name) == wanted and path != here}
    return sorted(found, key=len)[:MOST_PLACES]


def _home(where: str, path: tuple[str, ...], key: str) -> str:
    section = ".".join((where, *path[:-1])) if len(path) > 1 else f"{where} itself"
    return section if path[-1] == key else f"{section} as {path[-1]}"


def _far(root: type[BaseModel], where: str, key: str) -> str:
    """The nearest name of any section; it must be very near."""
    names = {name: path for path, name in _names(root)}
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.8)
    if not near:
        return "kubectl explain lists the fields"
    return f"did you mean {'.'.join((where, *names[near[0]], near[0]))}?"


@cache
def _names(root: type[BaseModel]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """(path of the section, field) of everything that can be written."""
    return tuple((path, name) for path, model in sections(root) for name in sorted(aliases(model)))


@cache
def _paths(root: type[BaseModel]) -> frozenset[str]:
    return frozenset(".".join((*path, name)) for path, name in _names(root))
