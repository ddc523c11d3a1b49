"""What to say about a key that is not known where it stands: its right name, or the place where it belongs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from .left_out import LEFT_OUT
from .spellings import IMPLIED, MOVED, NO_PLACE, REFUSED, SIMILAR, SPELLINGS, WRAPPERS, camel_path, plain, plain_path
from .tree import Part, Place, aliases, closed_values, place, sections, tag, written_path

MOST_NAMES: Final = 16
"""Of a section, in a hint: more are not read."""
MOST_PLACES: Final = 3
OFF: Final = "disable"
"""What a list of words has in place of false; the first other word stands for true."""
VERY_NEAR: Final = 0.9
"""Likeness of a name from which nothing else can be meant."""


def unknown_key(root: type[BaseModel], loc: Sequence[Part], where: str, data: Any) -> str:
    """The hint for the key at the end of `loc`, below `root`, which lies at `where`; `data` is all that is written."""
    here, key = place(root, loc[:-1]), str(loc[-1])
    value = _value(data, (*here.parts, key))
    known = sorted(_fields(here.models))
    section = [str(part) for part in here.parts if isinstance(part, str)]
    same = [name for name in known if plain(name) == plain(key)]
    if reason := _refused(section, key, value):
        return f"remove it: {reason}"
    if same and _value(data, (*here.parts, same[0])) is not None:
        return f"it is spelled {same[0]}, which is there already: remove this one"
    if same:
        return f"it is spelled {same[0]}: fields are in camelCase" if _joined(key) else f"did you mean {same[0]}?"
    if not section and (said := _said_of(root, key)):
        return said
    translated = {name: _looked_up(_SAME, root, [key, name]) for name in _keys(value)}
    if any(translated.values()):
        return "; ".join(f"{name} is called {where}.{path} here" for name, path in translated.items() if path)
    if path := _looked_up(_SAME, root, [*section, key]):
        if _value(data, path.split(".")) is not None:
            return f"it is called {where}.{path} here, which is there already: remove this one"
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
        return f"it belongs in {' or '.join(_home(root, where, home, key) for home in homes)}" + (
            f"; or did you mean {near[0]}?" if near else ""
        )
    if path := _looked_up(_SIMILAR, root, [key]):
        return f"the nearest is {where}.{path}"
    if near:
        return f"did you mean {near[0]}?"
    # The fields of a spec can be looked up in the cluster, those of a configuration cannot.
    if len(known) <= MOST_NAMES or where != "spec":
        return f"known are {', '.join(known)}"
    return _far(root, where, key)


def meant_section(root: type[BaseModel], loc: Sequence[Part]) -> str | None:
    """The section that the unknown key at the end of `loc` is a wrong name of, if there is no doubt."""
    here, key = place(root, loc[:-1]), str(loc[-1])
    if len(here.models) != 1 or not all(isinstance(part, str) for part in loc):
        return None
    held = [name for name in sorted(_fields(here.models)) if place(root, (*loc[:-1], name)).models]
    same = [name for name in held if plain(name) == plain(key)]
    return next(iter(same or difflib.get_close_matches(key, held, n=1, cutoff=VERY_NEAR)), None)


def possible_fields(root: type[BaseModel], section: Sequence[str], key: str, value: Any) -> set[str]:
    """Every field below `root` that an unknown key of a section may be meant for, or a key inside of it."""
    here = place(root, section)
    near = difflib.get_close_matches(key, sorted(_fields(here.models)), n=MOST_NAMES)
    ways: list[Sequence[str]] = [*((*section, name) for name in near), *_homes(root, section, key)]
    names = {name: path for path, name in _names(root)}
    ways += [(*names[name], name) for name in difflib.get_close_matches(key, names, n=MOST_PLACES, cutoff=VERY_NEAR)]
    within = [_looked_up(_SAME, root, [key, name]) for name in _keys(value)]
    told = [_looked_up(_SAME, root, [*section, key]), _looked_up(_SIMILAR, root, [key]), *within]
    found = {".".join(way) for way in ways} | {path for path in told if path is not None}
    for name in _keys(value):
        found |= possible_fields(root, (), name, value[name])
    return found


def near_value(at: Place, value: Any) -> str | None:
    """The allowed value that is probably meant, if there is one."""
    allowed = closed_values(at.annotation)
    if isinstance(value, bool) and OFF in allowed:
        return next(option for option in allowed if (option == OFF) is not value)
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
_REFUSED: Final = {plain_path(path): refusal for path, refusal in REFUSED.items()}
_WORDS: Final = {plain_path(path): words for path, words in SPELLINGS.items()}


def _value(data: Any, path: Sequence[Part]) -> Any:
    """What is written at the path; None where nothing is."""
    for part in path:
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, Sequence) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _refused(section: Sequence[str], key: str, value: Any) -> str | None:
    """Why it would be refused under its right name too."""
    refused, reason = _REFUSED.get(plain_path(".".join((*section, key))), (None, None))
    return reason if refused is not None and value == refused else None


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


def _home(root: type[BaseModel], where: str, path: tuple[str, ...], key: str) -> str:
    section = f"{where}.{written_path(root, path).rpartition('.')[0]}" if len(path) > 1 else f"{where} itself"
    return section if path[-1] == key else f"{section} as {path[-1]}"


def _far(root: type[BaseModel], where: str, key: str) -> str:
    """The nearest name of any section; it must be very near."""
    names = {name: path for path, name in _names(root)}
    near = difflib.get_close_matches(key, names, n=1, cutoff=VERY_NEAR)
    if not near:
        return "kubectl explain lists the fields"
    return f"did you mean {where}.{written_path(root, (*names[near[0]], near[0]))}?"


@cache
def _names(root: type[BaseModel]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """(path of the section, field) of everything that can be written."""
    return tuple((path, name) for path, model in sections(root) for name in sorted(aliases(model)))


@cache
def _paths(root: type[BaseModel]) -> frozenset[str]:
    return frozenset(".".join((*path, name)) for path, name in _names(root))
