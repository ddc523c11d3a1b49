"""Which documents are ours, and what is wrong with everything around their spec."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..api import names
from ..api.conditions import Reason
from ..api.deployment import LLMDeployment, LLMDeploymentSpec
from ..api.engine import LLMEngine, LLMEngineSpec
from ..api.problems import Problem
from ..api.schema import parse_spec
from ..resolve.projection import Spec
from .documents import Document
from .failure import BadInput
from .inputs import Knowledge, knowledge_of

MODELS: Final[Mapping[str, type[LLMDeploymentSpec] | type[LLMEngineSpec]]] = {
    LLMDeployment.KIND: LLMDeploymentSpec,
    LLMEngine.KIND: LLMEngineSpec,
}
ROOT: Final = ("apiVersion", "kind", "metadata", "spec", "status")
METADATA: Final = (
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One object of ours; `spec` is None when it does not parse, and `problems` says why."""

    document: Document
    kind: str
    name: str
    namespace: str | None
    spec: Spec | None
    problems: tuple[Problem, ...]

    @property
    def knowledge(self) -> Knowledge | None:
        """What the object's own status says about the model, if it came from a cluster."""
        status = self.document.data.get("status")
        return knowledge_of(status.get("model")) if isinstance(status, dict) else None

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A document that is no object of ours."""

    document: Document
    what: str
    """Its kind and name."""


def sort_out(documents: Iterable[Document]) -> tuple[list[Found], list[Skipped]]:
    """Our objects, and the rest."""
    found: list[Found] = []
    skipped: list[Skipped] = []
    for document in (item for whole in documents for item in whole.items()):
        data = document.data if isinstance(document.data, dict) else {}
        kind = data.get("kind")
        if isinstance(kind, str) and (kind in MODELS or _is_our_group(data)):
            found.append(_found(document, kind if kind in MODELS else _nearest_kind(kind)))
        else:
            skipped.append(Skipped(document=document, what=what(document.data)))
    return found, skipped


def _is_our_group(data: Mapping[str, Any]) -> bool:
    return str(data.get("apiVersion")).startswith(f"{names.GROUP}/")


def _nearest_kind(kind: str) -> str:
    """Which of our kinds a misspelt one is meant to be."""
    by_word = {known.lower(): known for known in MODELS}
    near = difflib.get_close_matches(kind.lower(), by_word, n=1, cutoff=0)
    return by_word[near[0]]


def the_only(found: list[Found], source: str, kind: str | None = None) -> Found:
    """The one object that a command works on. Raises `BadInput` unless there is exactly one, of `kind` if named."""
    wanted = [one for one in found if kind in (None, one.kind)]
    if len(wanted) == 1:
        return wanted[0]
    what = kind or " or ".join(MODELS)
    if not wanted:
        raise BadInput(f"{source}: holds no {what}")
    held = ", ".join(one.title for one in wanted)
    raise BadInput(f"{source}: holds {len(wanted)} objects ({held}); this command takes one at a time")


def _found(document: Document, kind: str) -> Found:
    data: Mapping[str, Any] = document.data
    metadata = data.get("metadata")
    spec, problems = parse_spec(MODELS[kind], {} if data.get("spec") is None else data["spec"])
    name = metadata.get("name") if isinstance(metadata, dict) else None
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    return Found(
        document=document,
        kind=kind,
        name=str(name) if name else "without a name",
        namespace=str(namespace) if namespace else None,
        spec=spec,
        problems=(*_root_problems(data, kind), *_metadata_problems(metadata, kind), *document.problems, *problems),
    )


def _root_problems(data: Mapping[str, Any], kind: str) -> list[Problem]:
    problems = []
    if data.get("kind") != kind:
        said = f"{data.get('kind')!r} is no kind of {names.GROUP}"
        problems.append(_problem("kind", said, f"did you mean {kind}? Known are {' and '.join(MODELS)}"))
    if data.get("apiVersion") != names.API_VERSION:
        said = "is required" if data.get("apiVersion") is None else f"{data['apiVersion']!r} has no {kind}"
        problems.append(_problem("apiVersion", said, f"write apiVersion: {names.API_VERSION}"))
    fields = {f.alias or name for name, f in MODELS[kind].model_fields.items()}
    for key in data:
        if key in ROOT:
            continue
        near = difflib.get_close_matches(key, ROOT, n=1)
        if key in fields:
            hint = f"it belongs below spec: spec.{key}"
        else:
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(ROOT)}"
        problems.append(_problem(key, "unknown field", hint))
    return problems


def _metadata_problems(metadata: Any, kind: str) -> list[Problem]:
    if metadata is None:
        return [_problem("metadata", "is required", "give the object a name: metadata: {name: ...}")]
    if not isinstance(metadata, dict):
        return [_problem("metadata", "must be a mapping", "for example metadata: {name: smollm2}")]
    problems = []
    for key in metadata:
        if key not in METADATA:
            near = difflib.get_close_matches(key, METADATA, n=1)
            hint = f"did you mean {near[0]}?" if near else "known are name, namespace, labels and annotations"
            problems.append(_problem(f"metadata.{key}", "unknown field", hint))
    for section in ("labels", "annotations"):
        values = metadata.get(section) or {}
        for key, value in values.items() if isinstance(values, dict) else ():
            if not isinstance(value, str):
                where = f"metadata.{section}[{key}]"
                problems.append(_problem(where, f"{json.dumps(value)} is no text", "put the value in quotes"))
    if metadata.get("generateName") is None:
        problems += _name_problems(metadata.get("name"), kind)
    return problems


def _name_problems(name: Any, kind: str) -> list[Problem]:
    where = "metadata.name"
    if name is None:
        return [_problem(where, "is required", "give the object a name")]
    if not isinstance(name, str):
        return [_problem(where, f"{json.dumps(name)} is no text", "put the name in quotes")]
    if kind != LLMDeployment.KIND:
        legal = len(name) <= 253 and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name)
        return [] if legal else [_problem(where, f"{name!r} is no name", "use a-z, 0-9, '-' and '.'")]
    if len(name) > names.NAME_LIMIT:
        said = f"{len(name)} characters are too many: the names that are made from it must fit"
        return [_problem(where, said, f"use at most {names.NAME_LIMIT}")]
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        return [_problem(where, f"{name!r} is no DNS label", "use a-z, 0-9 and '-', and begin with a letter")]
    if name.endswith("-ranks"):
        said = f"{name!r} is the name of another deployment's Service"
        return [_problem(where, said, "choose one that does not end in -ranks")]
    return []


def _problem(path: str, message: str, hint: str) -> Problem:
    return Problem(path=path, code=Reason.INVALID_SPEC, message=message, hint=hint)


def what(data: Any) -> str:
    """Kind and name, for people."""
    if not isinstance(data, dict):
        return "a document that is no object"
    if not data.get("kind"):
        return "an object without a kind"
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{data['kind']} {name}" if name else str(data["kind"])
