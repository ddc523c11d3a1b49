"""What can be read of a spec that does not parse, so that one answer holds all errors.

What is broken is taken out, and so is every field that an unknown key may be meant for. Whoever asks for one of these
meets `Unread`: no rule is ever told a default where the user has written something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ..api.schema import ApiModel, Unread, parse_spec
from ..api.tree import aliases, place
from ..api.unknown import possible_fields
from .options import ROOT
from .projection import Spec

Model = TypeVar("Model", bound=ApiModel)
Fields = tuple[str, ...]
Stray = tuple[Fields, str, Any]
"""A key that is unknown in its section, and its value."""

A_MODEL: Final = "owner/name"
"""In place of a model that cannot be read, without which there is no spec; nobody is told it."""
DEEPEST: Final = 8
"""Times that something is taken out: sections lie less deep in one another."""
MOST_STRAYS: Final = 100
"""Unknown keys, those within them counted: each is compared with every name there is."""
STEP: Final = re.compile(r"\.([^.\[]+)|\[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A spec, and the paths of which it does not say what the user wants."""

    spec: Spec
    unread: frozenset[str]


class Legible(Mapping[str, Any]):
    """Written values by path; asking for one that is unread, or holds or lies in one, raises `Unread`."""

    def __init__(self, values: Mapping[str, Any], unread: frozenset[str]) -> None:
        self._unread = unread
        self._values = {path: value for path, value in values.items() if not self._is_unread(path)}

    def __getitem__(self, path: str) -> Any:
        if self._is_unread(path):
            raise Unread(path)
        return self._values[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _is_unread(self, path: str) -> bool:
        return any(f"{path}.".startswith(f"{one}.") or one.startswith(f"{path}.") for one in self._unread)


def legible(model: type[Spec], data: Any) -> Part | None:
    """The part of `data` that makes a spec; None: nothing can be read."""
    if not isinstance(data, Mapping):
        return None
    strays: list[Stray] = []
    rest, unread = _known(model, data, (), strays), set[Fields]()
    if sum(_keys(value, 1) for _, _, value in strays) > MOST_STRAYS:
        return None
    for section, key, value in strays:
        unread |= _possible(model, section, key, value)
    for _ in range(DEEPEST):
        spec, problems = parse_spec(model, rest)
        if spec is not None:
            return Part(spec=spec, unread=frozenset(".".join((ROOT, *fields)) for fields in unread))
        for problem in problems:
            fields, below = _fields(model, problem.path)
            if not fields:
                return None
            for key in below:
                unread |= _possible(model, fields, key, None)
            # What is asked for although it was left out takes its section with it.
            while len(fields) > 1 and not _written(rest, fields) and fields in unread:
                fields = fields[:-1]
            unread.add(fields)
            rest = _dropped(rest, fields)
            if fields == ("model",):
                rest["model"] = A_MODEL
    return None


def without(section: Model, unread: Iterable[str]) -> Model:
    """A copy that lacks the fields at these paths; what the model does not have is no matter."""
    return _without(section, [path.split(".")[1:] for path in unread])


def _without(section: Model, paths: Iterable[Sequence[str]]) -> Model:
    copy, below = section.model_copy(), dict[str, list[Sequence[str]]]()
    for first, *rest in paths:
        below.setdefault(first, []).append(rest)
    for name, field in type(section).model_fields.items():
        inner, ways = copy.__dict__.get(name), below.get(field.alias or name)
        if ways and isinstance(inner, ApiModel) and all(ways):
            copy.__dict__[name] = _without(inner, ways)
        elif ways:
            copy.__dict__.pop(name, None)
    return copy


def _known(root: type[ApiModel], data: Mapping[str, Any], above: Fields, strays: list[Stray]) -> dict[str, Any]:
    """`data` without keys that are unknown, which become `strays`."""
    known = {name for model in place(root, above).models for name in aliases(model)}
    rest: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            strays.append((above, str(key), value))
        elif isinstance(value, Mapping) and len(place(root, (*above, key)).models) == 1:
            rest[key] = _known(root, value, (*above, key), strays)
        else:
            rest[key] = value
    return rest


def _keys(value: Any, own: int) -> int:
    """How many there are in a value and below it, and `own` more."""
    return own + sum(_keys(inner, 1) for inner in value.values()) if isinstance(value, Mapping) else own


def _possible(root: type[ApiModel], section: Fields, key: str, value: Any) -> set[Fields]:
    return {tuple(path.split(".")) for path in possible_fields(root, section, key, value)}


def _fields(root: type[ApiModel], path: str) -> tuple[Fields, list[str]]:
    """The sections and the field that lead to a problem, as far as each is one; and the keys that come after."""
    parts = [match[1] for match in STEP.finditer(path.removeprefix(ROOT))]
    for length, part in enumerate(parts):
        models = place(root, [p for p in parts[:length] if p]).models
        if part is None or len(models) != 1 or part not in aliases(models[0]):
            return tuple(parts[:length]), [key for key in parts[length:] if key]
    return tuple(parts), []


def _written(data: Any, fields: Fields) -> bool:
    for name in fields:
        if not isinstance(data, Mapping) or name not in data:
            return False
        data = data[name]
    return True


def _dropped(data: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """`data` without the field, which may not be there."""
    first, *rest = fields
    inner = data.get(first)
    if not rest or not isinstance(inner, Mapping):
        return {key: value for key, value in data.items() if key != first}
    return {**data, first: _dropped(inner, tuple(rest))}
