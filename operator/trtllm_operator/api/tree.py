"""Walks over models: which sections a field holds, where an error is, and every path that can be written."""

from __future__ import annotations

import enum
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Part = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Something below a model, by the path that a user writes."""

    parts: tuple[Part, ...]
    models: tuple[type[BaseModel], ...]
    """What may stand there: none for a value, several for a union."""
    annotation: Any
    """Type of the field."""
    description: str | None = None
    """What the field is, if it is one."""
    constraints: tuple[Any, ...] = ()
    """What a value must keep beyond its type."""


def held_models(annotation: Any) -> list[type[BaseModel]]:
    """The models that a value of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for inner in typing.get_args(annotation) for found in held_models(inner)]


def closed_values(annotation: Any) -> list[str]:
    """The texts that a value of this type may be, if it comes out of a closed list; else nothing."""
    if typing.get_origin(annotation) is Literal:
        return [value for value in typing.get_args(annotation) if isinstance(value, str)]
    if isinstance(annotation, type) and issubclass(annotation, enum.StrEnum):
        return [member.value for member in annotation]
    return [found for inner in typing.get_args(annotation) for found in closed_values(inner)]


def aliases(model: type[BaseModel]) -> set[str]:
    """The model's fields, as they are written."""
    return {field.alias or name for name, field in model.model_fields.items()}


def tag(model: type[BaseModel]) -> tuple[str, str] | None:
    """(field, value) that tells a model apart from the others of its union."""
    for name, field in model.model_fields.items():
        values = typing.get_args(field.annotation) if typing.get_origin(field.annotation) is Literal else ()
        if field.is_required() and len(values) == 1:
            return field.alias or name, values[0]
    return None


def place(root: type[BaseModel], loc: Sequence[Part]) -> Place:
    """What an error's location means: the validator also names the type of a union, which nobody writes."""
    parts: list[Part] = []
    models: list[type[BaseModel]] = [root]
    annotation: Any = root
    field: FieldInfo | None = None
    for part in loc:
        chosen = [model for model in models if (tag(model) or ("", ""))[1] == part] if len(models) > 1 else []
        if chosen:
            models = chosen
            continue
        parts.append(part)
        if isinstance(part, int):
            continue
        found = next((f for model in models for f in model.model_fields.values() if f.alias == part), None)
        if found is not None:
            field, models, annotation = found, held_models(found.annotation), found.annotation
    return Place(
        parts=tuple(parts),
        models=tuple(models),
        annotation=annotation,
        description=field.description if field else None,
        constraints=tuple(_constraints(field)) if field else (),
    )


def written_path(root: type[BaseModel], parts: Sequence[str]) -> str:
    """The path of a field as a user writes it: a list is marked by `[]`."""
    written = []
    for end, part in enumerate(parts, start=1):
        here = place(root, parts[:end])
        many = end < len(parts) and _many(here.annotation)
        written.append(f"{part}[]" if many else part)
    return ".".join(written)


def _many(annotation: Any) -> bool:
    """Whether a value of this type is a list."""
    return typing.get_origin(annotation) in (tuple, list) or any(map(_many, typing.get_args(annotation)))


def _constraints(annotated: Any) -> Iterator[Any]:
    """Of a field and of what it holds, those of the field first."""
    if isinstance(annotated, FieldInfo):
        yield from annotated.metadata
        yield from _constraints(annotated.annotation)
        return
    for constraint in getattr(annotated, "__metadata__", ()):
        yield from constraint.metadata if isinstance(constraint, FieldInfo) else (constraint,)
    for inner in typing.get_args(annotated):
        yield from _constraints(inner)


def sections(root: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """`root` and every model below it with its path; the top first. Items of a list share the path of the list."""
    yield above, root
    for name, field in root.model_fields.items():
        for model in held_models(field.annotation):
            yield from sections(model, (*above, field.alias or name))
