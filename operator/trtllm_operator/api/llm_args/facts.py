"""What the reference says about a field beyond its type: default and phase, readable by machines at this one place.

A field carries its `Ref` as an annotation. The schema shows the default as the last sentence of the field's
description and never as a default, because presence is information.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from ..schema import ApiModel, models_in
from ..tree import closed_values

Phase = Literal["build", "runtime", "both", "none"]
"""What a field affects in the reference: the engine, the executor, both, or nothing."""

DEFAULT_KEYWORD: Final = "x-reference-default"
"""Carries the sentence about the default from a field to its description; no schema keeps it."""


class Required:
    """In place of a default: the reference has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = Required()


@dataclass(frozen=True, slots=True)
class Ref:
    """The reference's facts about one field."""

    default: Any
    """As JSON; None: the reference's None. A section whose fields have defaults of their own has None."""
    phase: Phase
    here: str | None = None
    """What an unset field becomes here, where that is not the reference's default."""
    versions: str | None = None
    """Releases of the image that know the field (`0.18+`, `0.18-0.19`); None: all."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = self.sentence()
        return handler(schema) | ({DEFAULT_KEYWORD: text} if text else {})

    def sentence(self) -> str:
        """The default as people read it; empty where there is nothing to say."""
        known = not isinstance(self.default, Required) and self.default is not None and self.default != []
        shown = self.default if isinstance(self.default, str) else json.dumps(self.default) if known else ""
        if self.here is None:
            return f"Default: {shown}." if known else ""
        return f"LlmArgs default: {shown}; unset here: {self.here}." if known else f"Unset: {self.here}."


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFact:
    """One field, where it is written and what the reference says about it."""

    path: str
    """Below the arguments, as users write it: `buildConfig.pluginConfig.gemmPlugin`."""
    model: type[ApiModel]
    name: str
    """In Python, which is the reference's own name."""
    ref: Ref

    @property
    def default(self) -> Any:
        return self.ref.default

    @property
    def phase(self) -> Phase:
        return self.ref.phase

    @property
    def section(self) -> tuple[type[ApiModel], ...]:
        """The models that the field holds; none for a value. Speculative decoding has one per type."""
        return tuple(models_in(self.model.model_fields[self.name].annotation))


def ref(model: type[ApiModel], field: str) -> Ref:
    """The reference's facts about `field`. Raises KeyError for a field that the reference does not have."""
    found = next((m for m in model.model_fields[field].metadata if isinstance(m, Ref)), None)
    if found is None:
        raise KeyError(f"{model.__name__}.{field} is no field of the reference")
    return found


def reference_default(model: type[ApiModel], field: str) -> Any:
    """The reference's default of `field`; REQUIRED where it has none."""
    return ref(model, field).default


def phase(model: type[ApiModel], field: str) -> Phase:
    """What `field` affects in the reference."""
    return ref(model, field).phase


def reference_name(model: type[ApiModel], alias: str) -> str:
    """The reference's spelling of a field as users write it: `dynamicTreeMaxTopK` -> `dynamic_tree_max_topK`."""
    return next(name for name, field in model.model_fields.items() if field.alias == alias)


def iter_fields(model: type[ApiModel], above: Sequence[str] = ()) -> Iterator[FieldFact]:
    """Every field of the reference in `model`, sections before their fields.

    The types of speculative decoding share a path; a field that several of them have comes once for each.
    """
    for name, field in model.model_fields.items():
        known = next((m for m in field.metadata if isinstance(m, Ref)), None)
        if known is None:
            continue
        parts = (*above, field.alias or name)
        fact = FieldFact(path=".".join(parts), model=model, name=name, ref=known)
        yield fact
        for section in fact.section:
            yield from iter_fields(section, parts)


def allowed_values(model: type[ApiModel], field: str) -> tuple[str, ...]:
    """The closed list that `field` takes its value from; empty for every other field."""
    return tuple(closed_values(model.model_fields[field].annotation))
