"""The ground that every API model stands on: camelCase, frozen, nothing unknown; and how JSON becomes one.

Presence is information: a field that the user did not write is None (or an empty section), and the
reference's default is told in the description only, because arbitration must tell the two apart.
"""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel

from .conditions import Reason
from .problems import Problem

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
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    def to_json(self) -> dict[str, Any]:
        """As it is written in YAML; what equals its default is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


class StatusModel(ApiModel):
    """Part of a status: fields of another operator version are skipped, not refused."""

    model_config = ConfigDict(extra="ignore")


Spec = TypeVar("Spec", bound=ApiModel)
Status = TypeVar("Status", bound=StatusModel)


def parse_spec(model: type[Spec], data: Any) -> tuple[Spec | None, tuple[Problem, ...]]:
    """The spec, or every problem with it at its path; never raises."""
    try:
        return model.model_validate_json(json.dumps(data), strict=True), ()
    except ValidationError as error:
        return None, spec_problems(model, error)
    except (TypeError, ValueError) as error:
        return None, (Problem(path="spec", code=Reason.INVALID_SPEC, message=f"is not JSON: {error}"),)


def spec_problems(model: type[ApiModel], error: ValidationError, where: str = "spec") -> tuple[Problem, ...]:
    """The validator's findings about `model`, which lies at `where`, as users read them."""
    return tuple(_problem(model, where, e["loc"], e["type"], e["msg"], e.get("input")) for e in error.errors())


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


def _problem(
    model: type[ApiModel], where: str, loc: tuple[int | str, ...], kind: str, text: str, value: Any
) -> Problem:
    path, hint = field_path(where, *loc), None
    if kind == "extra_forbidden":
        known = _known_fields(model, loc[:-1])
        near = difflib.get_close_matches(str(loc[-1]), known, n=1)
        message, hint = "unknown field", f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    elif kind == "missing":
        message = "is required"
    else:
        message = f"{_shown(value)} is not allowed: {text[:1].lower()}{text[1:]}"
    return Problem(path=path, code=Reason.INVALID_SPEC, message=message, hint=hint)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def _known_fields(model: type[ApiModel], loc: tuple[int | str, ...]) -> list[str]:
    """Field names of the model at `loc` below `model`, as they are written."""
    for part in loc:
        if isinstance(part, int):
            continue
        annotation = next((f.annotation for f in model.model_fields.values() if f.alias == part), None)
        model = next(iter(_models_in(annotation)), model)
    return sorted(f.alias or name for name, f in model.model_fields.items())


def _models_in(annotation: Any) -> list[type[ApiModel]]:
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        return [annotation]
    return [found for inner in typing.get_args(annotation) for found in _models_in(inner)]
