"""From the reference's options to a spec, field by field, with every change told; and back.

The tree of the options is walked along the models, which carry the reference's own names. What is known under
another name or in another section is put where it belongs; nothing is dropped without a note.
"""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from ..api.deployment import LLMDeploymentSpec
from ..api.left_out import LEFT_OUT
from ..api.llm_args import OFF, LlmArgs
from ..api.spellings import IMPLIED, MOVED, NO_PLACE, SPELLINGS, WRAPPERS, plain, plain_path
from ..api.tree import closed_values, held_models, sections
from .notes import Level, Note

WORDS: Final[Mapping[str, bool]] = {
    "enable": True,
    "true": True,
    "on": True,
    "yes": True,
    "disable": False,
    "false": False,
    "off": False,
    "no": False,
}
"""How flags and files say yes and no."""

_MOVED: Final = {plain_path(name): path for name, path in MOVED.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value of the spec came from."""

    what: str
    """For people: `options.yaml:3: tp_size`, or `--tp_size 2`."""
    path: str | None = None
    """Path in the options file; None: a flag."""


class OriginOf(typing.Protocol):
    """Where a path of the options stands."""

    def __call__(self, path: tuple[str, ...], /) -> Origin: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a spec."""

    written: tuple[str, ...]
    """As a spec writes it: ('kvCacheConfig', 'maxTokens')."""
    names: tuple[str, ...]
    """As the reference does."""
    owners: tuple[type[BaseModel], ...]
    """The models that have the field: several types of speculation may."""

    @property
    def text(self) -> str:
        return ".".join(self.written)

    @property
    def sections(self) -> tuple[type[BaseModel], ...]:
        """The models that the field holds; none for a value."""
        return tuple(held_models(self._info.annotation))

    @property
    def kinds(self) -> frozenset[type]:
        """The plain types that the field takes."""
        return frozenset(_kinds(self._info.annotation))

    @property
    def allowed(self) -> tuple[str, ...]:
        """The closed list that the field takes its texts from; empty for every other field."""
        name = self.names[-1]
        values = (v for owner in self.owners for v in closed_values(owner.model_fields[name].annotation))
        return tuple(dict.fromkeys(values))

    @property
    def is_told_by_presence(self) -> bool:
        """Whether an empty section says something that none does not."""
        return bool(self.sections) and self._info.default is None

    @property
    def _info(self) -> Any:
        return self.owners[0].model_fields[self.names[-1]]


def find_field(path: Sequence[str]) -> Field | None:
    """The field at this path, in the reference's spelling or a spec's; None if a spec has none."""
    models: Sequence[type[BaseModel]] = (LLMDeploymentSpec,)
    found = Field(written=(), names=(), owners=())
    for part in path:
        names = [(m, n) for m in models for n, f in m.model_fields.items() if part in (n, f.alias)]
        if not names:
            return None
        model, name = names[0]
        found = Field(
            written=(*found.written, model.model_fields[name].alias or name),
            names=(*found.names, name),
            owners=tuple(m for m, _ in names),
        )
        models = found.sections
    return found if found.names else None


def field_at(path: str) -> Field:
    """`find_field` of a path that is in a table of ours."""
    found = find_field(path.split("."))
    assert found is not None, path
    return found


class SpecBuilder:
    """Collects a spec from options and flags. What comes later wins, and that is told."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] = {}
        self.notes: list[Note] = []
        self.origins: dict[tuple[str, ...], Origin] = {}
        """By path in the spec."""

    def note(self, level: Level, what: str, text: str) -> None:
        self.notes.append(Note(level=level, what=what, text=text))

    def put(self, path: str, value: Any, origin: Origin) -> None:
        """Write a value to the field at `path`, spelled as a spec wants it."""
        field = field_at(path)
        value = self._spelled(field, value, origin)
        if value is None:
            return
        section = self._section_at(field.written[:-1])
        if section is None:
            text = f"cannot be put into {'.'.join(field.written[:-1])}, which is no section in the input"
            self.note(Level.NO_PLACE, origin.what, text)
            return
        before = section.get(field.written[-1])
        if before is not None and before != value:
            other = self.origins[field.written].what if field.written in self.origins else "another option"
            text = f"says {_shown(value)} for {field.text}, and {other} says {_shown(before)}; {_shown(value)} is taken"
            self.note(Level.WARNING, origin.what, text)
        section[field.written[-1]] = value
        self.origins[field.written] = origin

    def options(self, data: Mapping[str, Any], origin_of: OriginOf) -> None:
        """Everything in an options file."""
        self._tell_dropped_flags(data)
        self._read(data, (), (LlmArgs,), origin_of)

    def _section_at(self, written: tuple[str, ...]) -> dict[str, Any] | None:
        """The section of the spec, made if it is not there; None if a value that is no section stands there."""
        section = self.spec
        for name in written:
            section = section.setdefault(name, {})
            if not isinstance(section, dict):
                return None
        return section

    def _tell_dropped_flags(self, data: Mapping[str, Any]) -> None:
        """XTR-3: in the reference a section of the file stands in place of the flags' whole section."""
        for written, origin in list(self.origins.items()):
            field = find_field(written)
            if field is None or origin.path is not None or len(field.names) < 2:
                continue
            section = data.get(field.names[0])
            if isinstance(section, Mapping) and not _holds(section, field.names[1:]):
                text = (
                    f"kept as {field.text}; trtllm-serve drops it without a word, because the options file has a "
                    f"section {field.names[0]} [XTR-3]"
                )
                self.note(Level.WARNING, origin.what, text)

    def _read(
        self,
        data: Mapping[str, Any],
        above: tuple[str, ...],
        models: Sequence[type[BaseModel]],
        origin_of: OriginOf,
        source: tuple[str, ...] = (),
    ) -> None:
        """A section: `above` is where it belongs, by the reference's names, `source` where it stands in the file."""
        for key, value in data.items():
            here, origin = (*source, key), origin_of((*source, key))
            dotted = plain_path(".".join((*above, key)))
            names = [(m, n) for m in models for n, f in m.model_fields.items() if key in (n, f.alias)]
            if names:
                field = find_field((*above, names[0][1]))
                assert field is not None
                self._read_field(field, value, origin, origin_of, here)
            elif not above and plain(key) in map(plain, WRAPPERS) and isinstance(value, Mapping):
                self.note(Level.TRANSLATED, origin.what, "what is in it counts as options")
                self._read(value, above, models, origin_of, here)
            elif dotted in _MOVED:
                self._move(field_at(_MOVED[dotted]), value, origin, origin_of, here)
            elif key in IMPLIED or any(known.startswith(dotted + ".") for known in _MOVED):
                self._read_later_section(key, value, origin, origin_of, here)
            elif (reason := LEFT_OUT.get(".".join((*above, key))) or NO_PLACE.get(key)) is not None:
                self.note(Level.NO_PLACE, origin.what, reason)
            else:
                self._stray(above, key, value, origin)

    def _read_field(
        self, field: Field, value: Any, origin: Origin, origin_of: OriginOf, source: tuple[str, ...]
    ) -> None:
        if not (field.sections and isinstance(value, Mapping)):
            self.put(field.text, value, origin)
            return
        self.origins.setdefault(field.written, origin)
        if field.is_told_by_presence:
            self._section_at(field.written)
        self._read(value, field.names, field.sections, origin_of, source)

    def _read_later_section(
        self, key: str, value: Any, origin: Origin, origin_of: OriginOf, source: tuple[str, ...]
    ) -> None:
        """A section that came after the reference: each of its keys is a field elsewhere."""
        if key in IMPLIED:
            path, said = IMPLIED[key]
            self._move(field_at(path), said if value is not None else not said, origin, origin_of, source)
        if value is None:
            return
        if not isinstance(value, Mapping):
            self.note(Level.NO_PLACE, origin.what, f"{_shown(value)} is no section")
            return
        for name, inner in value.items():
            where, here = (*source, name), origin_of((*source, name))
            target = _MOVED.get(f"{plain(key)}.{plain(name)}")
            if target is not None:
                self._move(field_at(target), inner, here, origin_of, where)
            else:
                self.note(Level.NO_PLACE, here.what, "is not known in this section")

    def _move(self, field: Field, value: Any, origin: Origin, origin_of: OriginOf, source: tuple[str, ...]) -> None:
        self.note(Level.TRANSLATED, origin.what, f"is {field.text} in a spec")
        self._read_field(field, value, origin, origin_of, source)

    def _stray(self, above: tuple[str, ...], key: str, value: Any, origin: Origin) -> None:
        """A key of another section, or of none."""
        homes = [home for home in _homes(key) if home[:-1] != above]
        if len(homes) == 1:
            field = field_at(".".join(homes[0]))
            here = f"the section {'.'.join(above)}" if above else "the top level"
            self.note(Level.WARNING, origin.what, f"has no meaning in {here}; put where it belongs: {field.text}")
            self.put(field.text, value, origin)
            return
        here_models = field_at(".".join(above)).sections if above else (LlmArgs,)
        near = difflib.get_close_matches(key, [n for m in here_models for n in m.model_fields], n=1)
        if near:
            text = f"is unknown; did you mean {near[0]}?"
        elif homes:
            text = f"has no meaning here; there are {' and '.join('.'.join(home) for home in homes)}"
        else:
            text = "is no option of the reference"
        self.note(Level.NO_PLACE, origin.what, text)

    def _spelled(self, field: Field, value: Any, origin: Origin) -> Any:
        """The value as a spec writes it; None: nothing is written."""
        if value is None:
            if OFF in field.allowed:
                self.note(Level.TRANSLATED, origin.what, f"null is written as {OFF}")
                return OFF
            self.note(Level.TRANSLATED, origin.what, f"null is what an unset {field.text} means")
            return None
        if field.names == ("enable_build_cache",) and isinstance(value, bool):
            # An empty section is the reference's true, no section its false.
            return {} if value else None
        if isinstance(value, str) and field.allowed and value not in field.allowed:
            return self._chosen(field, value, origin)
        return _typed(field, value)

    def _chosen(self, field: Field, value: str, origin: Origin) -> Any:
        """Out of a closed list, whatever the case; what is in no list is left to the schema to refuse."""
        words = {plain(word): chosen for word, chosen in SPELLINGS.get(".".join(field.names), {}).items()}
        if plain(value) in words and words[plain(value)] is None:
            self.note(Level.TRANSLATED, origin.what, f"{value} is what an unset {field.text} means")
            return None
        meant = [words.get(plain(value)), *(v for v in field.allowed if plain(v) == plain(value))]
        chosen = next((v for v in meant if v in field.allowed), None)
        if chosen is None:
            return _typed(field, value)
        self.note(Level.TRANSLATED, origin.what, f"{value} is written as {chosen}")
        return chosen


def to_options(args: Mapping[str, Any]) -> dict[str, Any]:
    """The options file of a spec's LlmArgs, in the reference's names. `model` is no option: it is an argument."""
    return {name: value for name, value in _reference_names(args, ()).items() if name != "model"}


def options_path(path: str) -> str | None:
    """Where the options file has what a spec has at `path` (`spec.kvCacheConfig.maxTokens`); None: nowhere."""
    parts = [part.partition("[") for part in path.removeprefix("spec.").split(".")]
    field = find_field([name for name, _, _ in parts])
    if field is None or field.names[0] not in LlmArgs.model_fields:
        return None
    return ".".join(name + bracket + index for name, (_, bracket, index) in zip(field.names, parts, strict=True))


def _reference_names(data: Mapping[str, Any], above: tuple[str, ...]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in data.items():
        field = field_at(".".join((*above, key)))
        name = field.names[-1]
        if name == "enable_build_cache" and value == {}:
            result[name] = True
        elif name == "backend" and value == "autodeploy":
            result[name] = "_autodeploy"
        elif value == OFF and OFF in field.allowed:
            result[name] = None
        elif field.sections and isinstance(value, Mapping):
            result[name] = _reference_names(value, field.written)
        else:
            result[name] = value
    return result


def _homes(key: str) -> list[tuple[str, ...]]:
    """Every field with this name, as a spec writes it."""
    found = {
        (*above, field.alias or name): None
        for above, model in sections(LlmArgs)
        for name, field in model.model_fields.items()
        if key in (name, field.alias)
    }
    return list(found)


def _holds(section: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether a section of the file sets the field as well, in either spelling."""
    key = next((key for key in section if plain(key) == plain(names[0])), None)
    if key is None:
        return False
    inner = section[key]
    return len(names) == 1 or (isinstance(inner, Mapping) and _holds(inner, names[1:]))


def _typed(field: Field, value: Any) -> Any:
    """A value of another type that can only mean one thing; everything else as it is, for the schema to judge."""
    kinds = field.kinds
    if isinstance(value, bool) and bool not in kinds and OFF in field.allowed:
        return OFF if not value else "auto" if "auto" in field.allowed else value
    if isinstance(value, str):
        word = value.strip().lower()
        if bool in kinds and word in WORDS:
            return WORDS[word]
        if str not in kinds and kinds & {int, float, tuple} and re.fullmatch(r"[-+]?[0-9]+", word):
            value = int(word)
        elif str not in kinds and float in kinds:
            try:
                value = float(word)
            except ValueError:
                return value
    return [value] if tuple in kinds and not isinstance(value, list | dict) else value


def _kinds(annotation: Any) -> Iterator[type]:
    origin = typing.get_origin(annotation)
    if annotation in (bool, int, float, str):
        yield annotation
    elif origin in (tuple, dict):
        yield origin
    elif origin is typing.Literal or (isinstance(annotation, type) and issubclass(annotation, str)):
        yield str
    elif origin in (typing.Union, types.UnionType):
        for inner in typing.get_args(annotation):
            yield from _kinds(inner)
    elif origin is typing.Annotated:
        yield from _kinds(typing.get_args(annotation)[0])


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
