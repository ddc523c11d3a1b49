"""YAML as people write it: every document of a file as plain data, and where each of its fields stands.

Scalars mean what they mean to kubectl (YAML 1.1 without dates and sexagesimal numbers). JSON is YAML.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from ..api.conditions import Reason
from ..api.problems import Problem
from ..api.schema import field_path
from .failure import BadInput

MOST_COPIES: Final = 10_000
"""Values of one document that aliases may repeat: a manifest with more is made to fill memory."""
STDIN: Final = "-"

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_TAG: Final = "tag:yaml.org,2002:"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


IMPLICIT: Final = tuple(
    (_TAG + name, re.compile(rf"(?:{pattern})\Z"), list(first))
    for name, pattern, first in (
        ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
        ("bool", r"true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF", "tTfFyYnNoO"),
        ("int", r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)", "-+0123456789"),
        (
            "float",
            r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
            "-+.0123456789",
        ),
        ("merge", r"<<", "<"),
    )
)
"""What a plain scalar is: tag, pattern, and the letters that it may begin with. The first that matches counts."""


class _Reader(_Loader):  # type: ignore[misc]  # Which of the two it is depends on how PyYAML was built.
    """Composes nodes; what a plain scalar is, is decided here."""

    yaml_implicit_resolvers: Mapping[str, Any] = {}


for _tag, _pattern, _letters in IMPLICIT:
    _Reader.add_implicit_resolver(_tag, _pattern, _letters)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Counted from 1, as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a file, or one item of a list in it."""

    source: str
    """The file as it was named; `-` is standard input."""
    data: Any
    positions: Mapping[str, Position]
    """Of every field, by its path from the document's root, as problems write it."""
    prefix: str = ""
    """Path of the item that this is within its document."""
    problems: tuple[Problem, ...] = field(default=())
    """Keys that are written twice."""

    def position(self, path: str) -> Position:
        """Of the field, or of the nearest thing around it: a field that is missing stands nowhere."""
        where = ".".join(part for part in (self.prefix, path) if part)
        while where and where not in self.positions:
            where = where[: max(where.rfind("."), where.rfind("["), 0)]
        return self.positions[where]

    @property
    def name(self) -> str:
        """The file as people read it."""
        return "<stdin>" if self.source == STDIN else self.source

    def at(self, path: str) -> str:
        """`file:line:column`, as compilers write it."""
        position = self.position(path)
        return f"{self.name}:{position.line}:{position.column}"

    def items(self) -> Iterator[Document]:
        """The objects of a `List`, as kubectl prints it, or of a `NodeList`, as the API server does, which leaves their
        kind out; any other document is one object."""
        data = self.data
        kind = data.get("kind") if isinstance(data, dict) else None
        if not (isinstance(kind, str) and kind.endswith("List") and isinstance(data.get("items"), list)):
            yield self
            return
        each = {"apiVersion": data.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
        for index, item in enumerate(data["items"]):
            prefix = f"items[{index}]"
            own = tuple(
                replace(problem, path=problem.path[len(prefix) + 1 :])
                for problem in self.problems
                if problem.path.startswith(prefix + ".")
            )
            yield replace(self, data={**each, **item} if isinstance(item, dict) else item, prefix=prefix, problems=own)


def read_text(source: str) -> str:
    """The text of a file, or of standard input for `-`. Raises `BadInput`."""
    try:
        return sys.stdin.read() if source == STDIN else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{source}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: is no text (byte {error.start} is not UTF-8)") from error


def read_documents(source: str) -> list[Document]:
    """Every document of a file that is not empty. Raises `BadInput` if it cannot be read or is no YAML."""
    return parse_documents(read_text(source), source)


def parse_documents(text: str, source: str) -> list[Document]:
    """Every document of a text that is not empty. Raises `BadInput` with the position if it is no YAML."""
    try:
        nodes = list(yaml.compose_all(text, Loader=_Reader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        raise BadInput(f"{where}: is no YAML: {error.problem or error.context}{_tab(text, mark)}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{source}: is no YAML: {error}") from error
    documents = (_Builder(source).document(node) for node in nodes if node is not None)
    return [document for document in documents if document.data is not None]


def _tab(text: str, mark: Any) -> str:
    line = text.splitlines()[mark.line : mark.line + 1] if mark else []
    return " (indent with spaces, not with tabs)" if line and line[0].lstrip(" ").startswith("\t") else ""


class _Builder:
    """Plain data out of the nodes of one document."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._positions: dict[str, Position] = {}
        self._problems: list[Problem] = []
        self._seen: set[int] = set()
        self._copies = 0
        self._open: list[int] = []

    def document(self, node: yaml.Node) -> Document:
        self._positions[""] = _position(node)
        data = self._value(node, ())
        return Document(source=self._source, data=data, positions=self._positions, problems=tuple(self._problems))

    def _value(self, node: yaml.Node, path: tuple[str | int, ...]) -> Any:
        self._copies += id(node) in self._seen
        self._seen.add(id(node))
        if self._copies > MOST_COPIES:
            raise self._unreadable(node, f"is repeated by aliases, which stand for more than {MOST_COPIES} values")
        if id(node) in self._open:
            raise self._unreadable(node, "is part of itself")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        self._open.append(id(node))
        value = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._sequence(node, path)
        self._open.pop()
        return value

    def _mapping(self, node: yaml.MappingNode, path: tuple[str | int, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                for source in reversed(value_node.value) if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                    value = self._value(source, path)
                    if not isinstance(value, dict):
                        raise self._unreadable(source, "<< takes a mapping, or a list of them")
                    merged |= value
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._unreadable(key_node, "a key must be a word")
            key, where = key_node.value, (*path, key_node.value)
            if key in first:
                message = f"is written twice; the first is in line {first[key]}"
                self._problems.append(
                    Problem(
                        path=field_path(*where), code=Reason.INVALID_SPEC, message=message, hint="keep one of the two"
                    )
                )
            first.setdefault(key, key_node.start_mark.line + 1)
            self._note(where, key_node)
            result[key] = self._value(value_node, where)
        return merged | result

    def _sequence(self, node: yaml.Node, path: tuple[str | int, ...]) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            self._note((*path, index), item)
            values.append(self._value(item, (*path, index)))
        return values

    def _note(self, path: tuple[str | int, ...], node: yaml.Node) -> None:
        position = _position(node)
        self._positions[field_path(*path)] = position
        if isinstance(path[-1], str) and not _PLAIN_KEY.fullmatch(path[-1]):
            self._positions[f"{field_path(*path[:-1])}[{path[-1]}]"] = position

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text, kind = node.value, node.tag.removeprefix(_TAG)
        if kind in ("str", "merge"):
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in ("true", "yes", "on")
        try:
            if kind == "int":
                return _integer(text)
            if kind == "float":
                return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError as error:
            raise self._unreadable(node, f"{text!r} is no number") from error
        raise self._unreadable(node, f"the tag {node.tag} stands for no plain value")

    def _unreadable(self, node: yaml.Node, what: str) -> BadInput:
        position = _position(node)
        return BadInput(f"{self._source}:{position.line}:{position.column}: {what}")


def _integer(text: str) -> int:
    digits = text.replace("_", "").lower()
    bare = digits.lstrip("+-")
    octal = len(bare) > 1 and bare[0] == "0" and bare[1].isdigit()
    return int(digits, 8) if octal else int(digits, 0)


def _position(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)
