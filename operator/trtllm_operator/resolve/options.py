"""A spec's LlmArgs as a flat map: what the user wrote, and what the reference takes where nothing is written.

Paths are those that users write, for example `spec.kvCacheConfig.enableBlockReuse`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..api.llm_args import REQUIRED, LlmArgs, iter_fields
from ..api.schema import ApiModel

ROOT: Final = "spec"
SIZES: Final = f"{ROOT}.buildConfig"


def _defaults() -> dict[str, Any]:
    facts = {fact.path: fact.default for fact in iter_fields(LlmArgs)}
    sections = {path.rpartition(".")[0] for path in facts}
    return {f"{ROOT}.{path}": facts[path] for path in facts if path not in sections and facts[path] is not REQUIRED}


REFERENCE: Final[Mapping[str, Any]] = _defaults()
"""Default of every field that has one; None is the reference's own None."""


def written(args: LlmArgs) -> dict[str, Any]:
    """Every value that the user wrote, lists and maps as a whole; enums are their spelling."""
    return dict(_leaves(args, LlmArgs, ROOT))


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The flat map as it is written in a spec, without `spec`."""
    result: dict[str, Any] = {}
    for path, value in flat.items():
        *sections, name = path.split(".")[1:]
        place = result
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return result


def _leaves(section: ApiModel, model: type[ApiModel], where: str) -> Iterator[tuple[str, Any]]:
    for name in model.model_fields:
        value = getattr(section, name)
        if name not in section.model_fields_set or value is None:
            continue
        path = f"{where}.{model.model_fields[name].alias or name}"
        if isinstance(value, ApiModel):
            # An empty section says something only where the default is its absence.
            if not value.model_fields_set and model.model_fields[name].default is None:
                yield path, {}
            yield from _leaves(value, type(value), path)
        else:
            yield path, value.value if isinstance(value, enum.Enum) else _plain(value)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
