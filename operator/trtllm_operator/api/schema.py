"""The ground that every API model stands on: camelCase, frozen, nothing unknown; and how JSON becomes one.

Presence is information: a field that the user did not write is None (or an empty section), and the
reference's default is told in the description only, because arbitration must tell the two apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from .conditions import Reason
from .problems import Problem
from .spellings import camel_case, plain
from .tree import Place, aliases, held_models, place, tag
from .unknown import near_value, unknown_key

QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
"""The quantities that make sense for a request: not negative, no exponent."""

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


class ApiModel(BaseModel):
    """Part of a spec: frozen, camelCase in JSON, unknown fields refused; a field's docstring is its description."""

    model_config = ConfigDict(
        alias_generator=camel_case, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    def to_json(self) -> dict[str, Any]:
        """As it is written in YAML; what equals its default is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


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
        # By alias alone: the API server knows no other name, and what it drops must not be obeyed elsewhere.
        return model.model_validate_json(json.dumps(data), strict=True, by_alias=True, by_name=False), ()
    except ValidationError as error:
        return None, spec_problems(model, error)
    except (TypeError, ValueError) as error:
        return None, (_problem("spec", f"is not JSON: {error}"),)


def spec_problems(model: type[ApiModel], error: ValidationError, where: str = "spec") -> tuple[Problem, ...]:
    """The validator's findings about `model`, which lies at `where`, as users read them."""
    found = error.errors()
    return tuple(
        problem
        for e in found
        # A list whose items are wrong is also told to be too short: the validator counts the right ones only.
        if not (e["type"] == "too_short" and any(o["loc"][:-1] == e["loc"] for o in found if o["loc"]))
        for problem in _problems(model, where, e["loc"], e["type"], e["msg"], e.get("input"))
    )


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


def _problems(
    model: type[ApiModel], where: str, loc: tuple[int | str, ...], kind: str, text: str, value: Any
) -> Iterator[Problem]:
    at = place(model, loc)
    path = field_path(where, *at.parts)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        yield _untold(at, path, value)
        known = {plain(name) for option in at.models for name in aliases(option)}
        for key in (key for key in value if plain(key) not in known):
            yield _problem(f"{path}.{key}", "unknown field", unknown_key(model, (*loc, key), where, value[key]))
    elif kind == "extra_forbidden":
        yield _problem(path, "unknown field", unknown_key(model, loc, where, value))
    elif kind == "missing":
        yield _problem(path, "is required")
    else:
        yield _problem(
            path, f"{_shown(value)} is not allowed: {_said(text)}", _quotes(kind, value) or _meant(at, value)
        )


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
