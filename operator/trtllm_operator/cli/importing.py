"""`llmd import`: what people have for TensorRT-LLM becomes an LLMDeployment."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from trtllm_engine.contract import MODELS_MOUNT

from ..api import names
from ..api.deployment import LLMDeployment, LLMDeploymentSpec
from ..resolve.defaults import Defaults
from ..resolve.source import REPOSITORY, is_path
from .comments import Comment, read_comments, write_comments
from .documents import STDIN, Document, parse_documents, read_text
from .failure import BadInput, BadUsage
from .flags import PROGRAMS, import_command
from .notes import Level, exit_code, show_notes
from .objects import MODELS, sort_out
from .options import Origin, SpecBuilder
from .output import Screen, to_yaml
from .shell import Command, Script, read_script
from .validate import judge

CLAIM: Final = "models"
"""Name of the claim that is written for a model in a folder: what the examples use."""


OPTIONS_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""Of a file that nobody runs."""


def import_(sources: Sequence[str], *, model: str | None, name: str | None, strict: bool) -> int:
    """Print the LLMDeployment, and on standard error what changed on the way. Raises `BadInput`."""
    builder = SpecBuilder()
    if len(sources) > 1 and Path(sources[0]).suffix in OPTIONS_SUFFIXES and Path(sources[0]).is_file():
        raise BadUsage(
            f"{sources[0]}: a file and a command are two inputs; if it holds options of the command, "
            f"add to the command: --extra_llm_api_options {sources[0]}"
        )
    if len(sources) == 1 and Command(words=tuple(sources), line=0).find(PROGRAMS) is None:
        comments = _import_file(sources[0], builder)
    else:
        comments = _import_words(sources, builder)
    if model is not None:
        builder.spec.pop("model", None)
        builder.put("model", model, Origin(what=f"--model {model}"))
    if "model" not in builder.spec:
        raise BadUsage(
            f"{sources[0]}: does not say what to serve; add --model OWNER/NAME or --model {MODELS_MOUNT}/FOLDER"
        )
    _place_model(builder)
    text = _document(builder, name, comments)
    document = parse_documents(text, "the result")[0]
    (found,), _ = sort_out([document])
    for problem in judge(found, Defaults(), None, None).problems:
        origin = _origin(builder, problem.path)
        if problem in found.problems:
            builder.note(Level.ERROR, origin, str(problem))
        else:
            builder.note(Level.REFUSED, origin, f"by this version: {problem}")
    sys.stdout.write(text)
    show_notes(Screen(sys.stderr), builder.notes)
    return exit_code(builder.notes, strict=strict)


def _import_words(words: Sequence[str], builder: SpecBuilder) -> list[Comment]:
    command = Command(words=tuple(words), line=0)
    if command.find(PROGRAMS) is None:
        raise BadUsage(
            f"{' '.join(words)}: give one file, or a command after --: llmd import -- {PROGRAMS[0]} MODEL --tp_size 2"
        )
    import_command(command, builder, _Reader(Path()))
    return []


def _import_file(source: str, builder: SpecBuilder) -> list[Comment]:
    text = read_text(source)
    script = _script(text, source)
    commands = [c for c in script.commands if c.find(PROGRAMS) is not None] if script else []
    if len(commands) > 1:
        lines = ", ".join(f"line {c.line} ({c.words[c.find(PROGRAMS) or 0]})" for c in commands)
        raise BadInput(
            f"{source}: holds {len(commands)} commands: {lines}; import one at a time, from a file of its own"
        )
    if script and commands:
        folder = Path() if source == STDIN else Path(source).parent
        import_command(commands[0], builder, _Reader(folder, script.files))
        return [Comment(path="spec", text=line, own_line=True) for line in commands[0].comments]
    document = _options_document(text, source)
    builder.options(document.data, _Origins(document))
    return [_moved(comment, builder) for comment in read_comments(text, document)]


def _script(text: str, source: str) -> Script | None:
    """None, if the text names no program outside of comments or is a mapping that no shell would run."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    if not any(re.search(rf"(?:^|[\s/;&|])({'|'.join(PROGRAMS)})(?:\s|$)", line) for line in lines):
        return None
    try:
        if all(isinstance(d.data, dict) for d in parse_documents(text, source)):
            return None
    except BadInput:
        pass
    return read_script(text, source)


def _options_document(text: str, source: str) -> Document:
    documents = parse_documents(text, source)
    if not documents:
        raise BadInput(f"{source}: is empty")
    data = documents[0].data
    if isinstance(data, dict) and data.get("kind") in MODELS:
        raise BadInput(f"{source}: is a {data['kind']} already; check it with: llmd validate {source}")
    if len(documents) > 1 or not isinstance(data, dict):
        what = f"neither options of TensorRT-LLM (one mapping) nor a command line of {' or '.join(PROGRAMS)}"
        raise BadInput(f"{source}: is {what}")
    return documents[0]


class _Origins:
    """Where each path of an options file stands; `above` is the section that the file is read into."""

    def __init__(self, document: Document, above: str = "") -> None:
        self._document = document
        self._above = above

    def __call__(self, path: tuple[str, ...], /) -> Origin:
        inner = ".".join(path[1:] if self._above else path)
        position = self._document.position(inner)
        return Origin(what=f"{self._document.name}:{position.line}: {inner}", path=inner)


class _Reader:
    """Reads the options files that a command names, relative to where the command stands."""

    def __init__(self, folder: Path, written: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._written = {posixpath.normpath(name): text for name, text in (written or {}).items()}

    def __call__(self, name: str, builder: SpecBuilder, section: str) -> None:
        text, source = self._written.get(posixpath.normpath(name)), str(self._folder / name)
        try:
            document = _options_document(read_text(source), source) if text is None else _options_document(text, name)
        except BadInput as error:
            builder.note(Level.ERROR, name, f"its options are missing in the result: {error}")
            return
        data: Mapping[str, Any] = {section: document.data} if section else document.data
        builder.options(data, _Origins(document, section))


def _moved(comment: Comment, builder: SpecBuilder) -> Comment:
    """At the field that its own field became; else at the nearest around it."""
    path = comment.path
    while path:
        for written, origin in builder.origins.items():
            if origin.path == path:
                inside = comment.path[len(path) :]
                index = inside if inside.startswith("[") else ""
                return replace(comment, path=f"spec.{'.'.join(written)}{index}")
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return replace(comment, path="spec" if comment.path else "", own_line=True)


def _place_model(builder: SpecBuilder) -> None:
    """A folder on some machine must be on a volume."""
    model = str(builder.spec["model"])
    if REPOSITORY.fullmatch(model) and not model.startswith("."):
        return
    if not (is_path(model) or model.startswith((".", "~"))):
        return
    inside = model if model.startswith(f"{MODELS_MOUNT}/") else f"{MODELS_MOUNT}/{_last(model)}"
    origin = builder.origins[("model",)]
    builder.note(
        Level.WARNING,
        origin.what,
        f"a folder must be on a volume: copy it to {inside.removeprefix(MODELS_MOUNT + '/')} on a claim of the "
        f"namespace; written with the claim {CLAIM!r}, change modelVolume if yours has another name",
    )
    builder.spec["model"] = inside
    builder.put("modelVolume.persistentVolumeClaim.claimName", CLAIM, origin)


def _document(builder: SpecBuilder, name: str | None, comments: Sequence[Comment]) -> str:
    spec = _ordered(builder.spec)
    data = {
        "apiVersion": names.API_VERSION,
        "kind": LLMDeployment.KIND,
        "metadata": {"name": name or _object_name(str(builder.spec["model"]))},
        "spec": spec,
    }
    text = to_yaml(data)
    return write_comments(text, parse_documents(text, "the result")[0], comments)


def _ordered(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Top-level fields in the order of the reference's documentation."""
    order = [f.alias or n for n, f in LLMDeploymentSpec.model_fields.items()]
    return {key: spec[key] for key in sorted(spec, key=order.index)}


def _object_name(model: str) -> str:
    """A legal name out of the model's."""
    name = re.sub(r"[^a-z0-9]+", "-", _last(model).lower()).strip("-")
    name = name if name[:1].isalpha() else f"model-{name}"
    return name[: names.NAME_LIMIT].strip("-")


def _last(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1]


def _origin(builder: SpecBuilder, path: str) -> str:
    """What the user wrote for a field of the result."""
    parts = tuple(part.split("[")[0] for part in path.split(".")[1:])
    while parts:
        if parts in builder.origins:
            return builder.origins[parts].what
        parts = parts[:-1]
    return path
