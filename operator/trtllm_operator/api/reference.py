"""Generates the reference of both kinds and of the conditions: `python -m trtllm_operator.api.reference DIRECTORY`.

Every field with its type, what is allowed, the default, the phase and what it is; every field of LlmArgs that a spec
has not, with the reason; and every reason of a condition, with what to do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .conditions import Reason
from .crd import structural
from .deployment import LLMDeployment, LLMDeploymentSpec, LLMDeploymentStatus
from .engine import MUTABLE_FIELDS, LLMEngine, LLMEngineSpec, LLMEngineStatus
from .guidance import GUIDE, NOT_PRODUCED, Guidance, Situation
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


CONDITIONS: Final = """`status.conditions` says how an object stands. Only these types occur:

| Condition | There | Says |
| --- | --- | --- |
| `Ready` | always | `True`: what the spec asks for is there, at this generation |
| `Reconciling` | only while true | work goes on, or waits for what the reason names, for as long as it takes |
| `Stalled` | only while true | somebody must act; what served before goes on serving |
| `SpecValid` | always | `False`: the spec is refused; `status.problems` lists every field |
| `EngineReady` | of an LLMDeployment | the engine of the target revision is built; `Unknown`: none is asked for yet |
| `Available` | of an LLMDeployment | some replica serves, of whichever revision |

The last three carry the reason of `Ready` while they are not `True`. A deployment can be `Available` and `Stalled` at
once: the old revision serves, and the new one failed.

The reason is one word out of the list below, for machines. The message says more: the names, the numbers, and the next
command. Commands here are for the object's namespace; what stands in capitals is in the message.

```
kubectl get llmd                              # the column REASON
kubectl describe llmd NAME                    # conditions with their messages, and events
kubectl wait --for=condition=Ready llmd/NAME --timeout=30m
```"""


def pages() -> dict[str, str]:
    """All pages, by file name."""
    return {"llmdeployment.md": _deployment(), "llmengine.md": _engine(), "conditions.md": _conditions()}


def _conditions() -> str:
    told = [part for situation in Situation for part in _situation(situation)]
    never = _table(("Reason", "Meaning", "Why"), ((f"`{r}`", r.meaning, why) for r, why in NOT_PRODUCED.items()))
    return _page("Conditions", CONDITIONS, [*told, "## Not in this version", "Kept free, and never reported.", never])


def _situation(situation: Situation) -> Iterator[str]:
    reasons = [(reason, guidance) for reason, guidance in GUIDE.items() if guidance.situation is situation]
    yield f"## {situation.value}"
    yield _table(
        ("Reason", "Means", "Conditions", "Who acts"),
        ((f"[{r}](#{r.lower()})", r.meaning, _shown_as(g), g.actor.value) for r, g in reasons),
    )
    for reason, guidance in reasons:
        yield from _reason(reason, guidance)


def _reason(reason: Reason, guidance: Guidance) -> Iterator[str]:
    yield f"### {reason}"
    yield "\n".join(("```", *guidance.look, "```"))
    yield guidance.remedy


def _shown_as(guidance: Guidance) -> str:
    return " or ".join(f"`{shown.value}`" for shown in guidance.shown)


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
    """Write all pages."""
    for name, text in pages().items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
