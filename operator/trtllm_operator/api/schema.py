"""The ground that every API model stands on: camelCase, frozen, nothing unknown; and how JSON becomes one.

Presence is information: a field that the user did not write is None (or an empty section), and the
reference's default is told in the description only, because arbitration must tell the two apart.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from .conditions import Reason
from .problems import Problem
from .quantity import QUANTITY_PATTERN
from .spellings import camel_case, plain
from .tree import Part, Place, aliases, held_models, place, tag
from .unknown import meant_section, near_value, unknown_key

QUANTITY_SAID: Final = "it must be a quantity"

Quantity = Annotated[
    str,
    BeforeValidator(lambda v: str(v) if isinstance(v, int) and not isinstance(v, bool) else v),
    Field(pattern=QUANTITY_PATTERN, max_length=32),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "maxLength": 32,
        }
    ),
]
"""A Kubernetes quantity (`500m`, `2Gi`, 4), kept as text."""

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
LabelMap = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)]


FIELDS_CONFLICT: Final = "fields_conflict"
"""Kind of a finding about fields that exclude each other: its context names the `fields` and the `hint`."""
RANGE: Final = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
MOST_DIGITS: Final = 10**4000


class Unread(Exception):
    """Somebody asked for a field of which it is not known what the user wants there."""


class ApiModel(BaseModel):
    """Part of a spec: frozen, camelCase in JSON, unknown fields refused; a field's docstring is its description."""

    model_config = ConfigDict(
        alias_generator=camel_case, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    def to_json(self) -> dict[str, Any]:
        """As it is written in YAML; what equals its default is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    if not TYPE_CHECKING:
        # A type checker would take any name for a field.
        def __getattr__(self, name: str) -> Any:
            """Reached only by what a model lacks: a field that was taken out has no value, not even its default."""
            if name in type(self).model_fields:
                raise Unread(name)
            return super().__getattr__(name)


class StatusModel(ApiModel):
    """Part of a status: fields of another operator version are skipped, not refused."""

    model_config = ConfigDict(extra="ignore")


Spec = TypeVar("Spec", bound=ApiModel)
Status = TypeVar("Status", bound=StatusModel)


def models_in(annotation: Any) -> list[type[ApiModel]]:
    """The sections of a spec that a value of this type may be; several for a union, none for a plain value."""
    return [model for model in held_models(annotation) if issubclass(model, ApiModel)]


def parse_spec(model: type[Spec], data: Any) -> tuple[Spec | None, tuple[Problem, ...]]:
    """The spec, or every problem with it at its path; never raises."""
    try:
        return _validated(model, data), ()
    except ValidationError as error:
        return None, spec_problems(model, error, data)
    except (TypeError, ValueError) as error:
        endless = tuple(_endless(data, "spec"))
        return None, endless or (_problem("spec", f"is not JSON: {error}"),)


def spec_problems(model: type[ApiModel], error: ValidationError, data: Any, where: str = "spec") -> tuple[Problem, ...]:
    """The validator's findings about `data`, which should be a `model` and lies at `where`, as users read them."""
    return tuple(problem for e in _findings(error) for problem in _problems(model, data, where, e))


def parse_status(model: type[Status], data: Any) -> Status:
    """The status, without the top-level fields that another version wrote in another shape; never raises."""
    fields = dict(data) if isinstance(data, Mapping) else {}
    while True:
        try:
            return model.model_validate_json(json.dumps(fields))
        except ValidationError as error:
            for field in {e["loc"][0] for e in error.errors()}:
                del fields[str(field)]


def field_path(*parts: int | str) -> str:
    """('spec', 'tolerations', 0, 'key') -> `spec.tolerations[0].key`."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts).lstrip(".")


def _validated(model: type[Spec], data: Any) -> Spec:
    # By alias alone: the API server knows no other name, and what it drops must not be obeyed elsewhere.
    return model.model_validate_json(json.dumps(data), strict=True, by_alias=True, by_name=False)


def _endless(data: Any, path: str) -> Iterator[Problem]:
    """Numbers of more digits than Python writes."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _endless(value, f"{path}.{key}")
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _endless(value, f"{path}[{index}]")
    elif isinstance(data, int) and abs(data) >= MOST_DIGITS:
        yield _problem(path, "is a number of thousands of digits", "write the number that is meant")


def _findings(error: ValidationError) -> list[ErrorDetails]:
    # A list whose items are wrong is also told to be too short: the validator counts the right ones only.
    found = error.errors()
    return [
        e for e in found if not (e["type"] == "too_short" and any(o["loc"][:-1] == e["loc"] for o in found if o["loc"]))
    ]


def _problems(model: type[ApiModel], data: Any, where: str, e: ErrorDetails) -> Iterator[Problem]:
    loc, kind, value, context = e["loc"], e["type"], e.get("input"), e.get("ctx", {})
    at = place(model, loc)
    path = field_path(where, *at.parts)
    if kind == FIELDS_CONFLICT:
        for field in context["fields"]:
            yield _problem(f"{path}.{field}", e["msg"], context["hint"])
    elif kind in ("union_tag_not_found", "union_tag_invalid"):
        yield _untold(at, path, value)
        known = {plain(name) for option in at.models for name in aliases(option)}
        for key in (key for key in value if plain(key) not in known):
            yield _problem(f"{path}.{key}", "unknown field", unknown_key(model, (*loc, key), where, data))
    elif kind == "extra_forbidden":
        yield _problem(path, "unknown field", unknown_key(model, loc, where, data))
        yield from _inside(model, data, where, loc, value)
    elif kind == "missing":
        yield _problem(path, "is required", _asked_for(at))
    else:
        said = _range(at) if kind in RANGE else QUANTITY_SAID if _is_quantity(context) else _said(e["msg"])
        yield _problem(path, f"{_shown(value)} is not allowed: {said}", _remedy(at, e))


def _inside(model: type[ApiModel], data: Any, where: str, loc: Sequence[Part], value: Any) -> Iterator[Problem]:
    """What is wrong inside a section whose name is wrong, at the paths that were written."""
    meant = meant_section(model, loc) if isinstance(value, Mapping) else None
    if meant is None:
        return
    above = place(model, loc[:-1]).parts
    nested: Any = {meant: value}
    for part in reversed(above):
        nested = {part: nested}
    try:
        _validated(model, nested)
    except ValidationError as error:
        right, written = field_path(where, *above, meant), field_path(where, *loc)
        for e in _findings(error):
            if e["loc"][: len(above) + 1] == (*above, meant):
                for problem in _problems(model, nested, where, e):
                    yield dataclasses.replace(problem, path=written + problem.path.removeprefix(right))


def _remedy(at: Place, e: ErrorDetails) -> str | None:
    kind, value = e["type"], e.get("input")
    if value is None:
        empty = at.models and kind in ("model_type", "model_attributes_type", "tuple_type", "dict_type")
        return "it is empty: indent the lines below it, or remove it" if empty else "give it a value, or remove it"
    if _is_quantity(e.get("ctx", {})):
        return "write for example 2, 1.5, 500m or 4Gi"
    return _quotes(kind, value) or _meant(at, value)


def _asked_for(at: Place) -> str | None:
    """What to write, from the field's description."""
    if not at.description:
        return None
    said = " ".join(at.description.split()).split(". ")[0].rstrip(".")
    return f"write it: {said[:1].lower()}{said[1:]}"


def _is_quantity(context: Mapping[str, Any]) -> bool:
    return context.get("pattern") == QUANTITY_PATTERN


def _range(at: Place) -> str:
    """Both bounds of a number."""
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    bounds: dict[str, str] = {}
    for constraint in at.constraints:
        for name, word in words.items():
            if (limit := getattr(constraint, name, None)) is not None:
                bounds.setdefault(name, f"{word} {limit}")
    return f"it must be {' and '.join(bounds[name] for name in words if name in bounds)}"


def _untold(at: Place, path: str, value: Mapping[str, Any]) -> Problem:
    """About a section of which it is not said, or not rightly, which type it is."""
    tags = [found for model in at.models if (found := tag(model))]
    field, kinds = tags[0][0], [kind for _, kind in tags]
    path, listed = f"{path}.{field}", f"{', '.join(kinds[:-1])} or {kinds[-1]}"
    if (written := value.get(field)) is not None:
        message = f"{_shown(written)} is not allowed: input should be {listed}"
        told = Place(parts=(*at.parts, field), models=(), annotation=Literal[tuple(kinds)])
        return _problem(path, message, _meant(told, written))
    having = [kind for model, kind in zip(at.models, kinds, strict=True) if set(value) <= aliases(model)]
    return _problem(
        path, f"is required: {listed}", f"what is written belongs to {having[0]}" if len(having) == 1 else None
    )


def _said(text: str) -> str:
    """The validator's sentence in the words of a user, who writes lists and maps."""
    for theirs, ours in (("Tuple", "list"), ("Dictionary", "map"), (" after validation", "")):
        text = text.replace(theirs, ours)
    return text[:1].lower() + text[1:]


def _quotes(kind: str, value: Any) -> str | None:
    """What to do where only the quotes are wrong."""
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        return "put it in quotes"
    pattern = {"int_type": r"-?[0-9]+", "float_type": r"-?[0-9]+(\.[0-9]+)?", "bool_type": r"true|false"}.get(kind)
    return "remove the quotes" if pattern and isinstance(value, str) and re.fullmatch(pattern, value) else None


def _meant(at: Place, value: Any) -> str | None:
    near = near_value(at, value)
    return f"did you mean {near}?" if near else None


def _problem(path: str, message: str, hint: str | None = None) -> Problem:
    return Problem(path=path, code=Reason.INVALID_SPEC, message=message, hint=hint)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
