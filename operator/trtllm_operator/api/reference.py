"""Generates the reference of both kinds from the models: `python -m trtllm_operator.api.reference DIRECTORY`.

Every field with its type, what is allowed, the default, the phase and what it is; and every field of LlmArgs that a
spec has not, with the reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .crd import structural
from .deployment import LLMDeployment, LLMDeploymentSpec, LLMDeploymentStatus
from .engine import MUTABLE_FIELDS, LLMEngine, LLMEngineSpec, LLMEngineStatus
from .left_out import LEFT_OUT
from .llm_args import REQUIRED, EngineArgs, LlmArgs, Ref
from .schema import ApiModel, models_in
from .tree import aliases, tag

HEADER: Final = (
    "<!-- Generated from operator/trtllm_operator/api (`python -m trtllm_operator.api.reference docs/reference`). -->\n"
)
MIRRORED_HEADS: Final = ("Field", "Type", "Allowed", "Default", "Phase", "What it is")
PLAIN_HEADS: Final = ("Field", "Type", "Allowed", "What it is")
PHASES: Final = """Phase says what a field affects in the reference: `build` the engine, `runtime` the running of it,
`both`, or `none`. A default is the reference's: a field that is not written is never filled in, and what
arbitration takes in its place is in `status.adjustments`."""


def pages() -> dict[str, str]:
    """Both pages, by file name."""
    return {"llmdeployment.md": _deployment(), "llmengine.md": _engine()}


def _deployment() -> str:
    return _page(
        LLMDeployment.KIND,
        "A model, served: LlmArgs at the top level of `spec`, deployment fields beside them.",
        [
            *_spec(LLMDeploymentSpec),
            *_status(LLMDeploymentStatus),
            "## LlmArgs that a spec has not",
            "By the reference's names.",
            _table(("Field", "Why"), ((f"`{path}`", reason) for path, reason in LEFT_OUT.items())),
        ],
    )


def _engine() -> str:
    running = ", ".join(f"`{name}`" for name in sorted(aliases(LlmArgs) - aliases(EngineArgs)))
    mendable = ", ".join(f"`{name}`" for name in sorted(MUTABLE_FIELDS))
    return _page(
        LLMEngine.KIND,
        "The built form of a model, addressed by its content: the LlmArgs that an engine may depend on, and how it is "
        "built and kept.",
        [
            f"These fields can be changed: {mendable}. Every other field is part of what the engine is: create another "
            "LLMEngine in place of changing it.",
            f"What only running depends on is in the LLMDeployment: {running}. What a spec has not at all is listed "
            "in [the reference of LLMDeployment](llmdeployment.md#llmargs-that-a-spec-has-not).",
            *_spec(LLMEngineSpec),
            *_status(LLMEngineStatus),
        ],
    )


def _page(kind: str, about: str, parts: Iterable[str]) -> str:
    return HEADER + "\n\n".join((f"# {kind}", about, *parts)) + "\n"


def _spec(model: type[ApiModel]) -> Iterator[str]:
    yield "## spec: LlmArgs"
    yield PHASES
    yield from _sections("spec", model, mirrored=True)
    yield "## spec: deployment" if model is LLMDeploymentSpec else "## spec: build and storage"
    yield from _sections("spec", model, mirrored=False)


def _status(model: type[ApiModel]) -> Iterator[str]:
    yield "## status"
    yield from _sections("status", model, mirrored=False)


def _sections(path: str, model: type[ApiModel], *, mirrored: bool | None) -> Iterator[str]:
    """A table of the model's fields, then those of its sections. `mirrored`: of the reference, or not; None: all."""
    schemas = structural(model)["properties"]
    names = [n for n in model.model_fields if mirrored is None or (_ref(model, n) is not None) == mirrored]
    if any(_ref(model, name) for name in names):
        yield _table(MIRRORED_HEADS, [_mirrored_row(model, name, schemas) for name in names])
    else:
        yield _table(PLAIN_HEADS, [_row(model, name, schemas) for name in names])
    for name in names:
        field = model.model_fields[name]
        alias = field.alias or name
        inner = f"{path}.{alias}" + ("[]" if schemas[alias].get("type") == "array" else "")
        kinds = [kind for kind in models_in(field.annotation) if kind.model_fields]
        for kind in kinds:
            told = tag(kind) if len(kinds) > 1 else None
            yield f"### `{inner}`" + (f", {told[0]} {told[1]}" if told else "")
            yield " ".join((kind.__doc__ or "").split())
            yield from _sections(inner, kind, mirrored=None)
        if not kinds and "properties" in schemas[alias]:
            # A type of the contract, which is no model of ours but has the schema of one.
            yield f"### `{inner}`"
            yield _table(PLAIN_HEADS, _schema_rows(schemas[alias]))


def _schema_rows(section: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, schema in section["properties"].items():
        required = "required" if name in section.get("required", ()) else ""
        allowed = "; ".join(filter(None, (required, _allowed(schema))))
        yield f"`{name}`", _type(schema), allowed, schema.get("description", "")


def _ref(model: type[ApiModel], name: str) -> Ref | None:
    return next((m for m in model.model_fields[name].metadata if isinstance(m, Ref)), None)


def _mirrored_row(model: type[ApiModel], name: str, schemas: Mapping[str, Any]) -> Sequence[str]:
    field, type_, allowed, text = _row(model, name, schemas)
    known = _ref(model, name)
    if known is None:
        return field, type_, allowed, "", "", text
    if known.versions:
        allowed = "; ".join(filter(None, (allowed, f"releases {known.versions}")))
    default = "required" if known.default is REQUIRED else "" if known.default is None else _shown(known.default)
    if known.here:
        text = f"{text} Unset here: {known.here}."
    return field, type_, allowed, default, known.phase, text


def _row(model: type[ApiModel], name: str, schemas: Mapping[str, Any]) -> tuple[str, str, str, str]:
    field = model.model_fields[name]
    alias = field.alias or name
    schema = schemas[alias]
    required = "required" if field.is_required() and _ref(model, name) is None else ""
    allowed = "; ".join(filter(None, (required, _allowed(schema))))
    return f"`{alias}`", _type(schema), allowed, " ".join((field.description or "").split())


def _shown(value: Any) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _type(schema: Mapping[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if schema["type"] == "object":
        return f"map of {_type(schema['additionalProperties'])}" if "additionalProperties" in schema else "section"
    return str(schema["type"])


def _allowed(schema: Mapping[str, Any]) -> str:
    """Every limit of a value, and of the items of a list, in words."""
    said = []
    if "enum" in schema:
        said.append(", ".join(f"`{value}`" for value in schema["enum"]))
    least, most = _limit(schema, "minimum", "above", "at least"), _limit(schema, "maximum", "below", "at most")
    if least and most and "exclusiveMinimum" not in schema and "exclusiveMaximum" not in schema:
        said.append(f"{schema['minimum']} to {schema['maximum']}")
    else:
        said += filter(None, (least, most))
    for keyword, unit in (("Length", "characters"), ("Items", "items"), ("Properties", "entries")):
        fewest, largest = schema.get(f"min{keyword}", 0), schema.get(f"max{keyword}")
        if largest is not None:
            said.append(f"{largest} {unit}" if fewest == largest else f"at most {largest} {unit}")
    if "pattern" in schema:
        said.append(f"pattern `{schema['pattern']}`")
    inner = schema.get("items") or schema.get("additionalProperties")
    if isinstance(inner, Mapping) and "properties" not in inner and (each := _allowed(inner)):
        said.append(f"each {each}")
    return "; ".join(said)


def _limit(schema: Mapping[str, Any], keyword: str, open_word: str, closed_word: str) -> str:
    if keyword not in schema:
        return ""
    exclusive = schema.get(f"exclusive{keyword.capitalize()}", False)
    return f"{open_word if exclusive else closed_word} {schema[keyword]}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def main(directory: Path) -> None:
    """Write both pages."""
    for name, text in pages().items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
