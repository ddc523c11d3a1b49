"""Comments of a YAML document: read with the field that each belongs to, and written to another document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import yaml

from .documents import Document

COMMENT: Final = re.compile(r"(?:^|(?<=\s))#")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """One line of comment."""

    path: str
    """Field that it belongs to; empty: the document's end."""
    text: str
    """With its `#`."""
    own_line: bool
    """False: it stands behind the field."""


def read_comments(text: str, document: Document) -> list[Comment]:
    """Of a text that holds `document` alone. A comment line belongs to the field that follows it."""
    starts = sorted((position, path) for path, position in document.positions.items() if path)
    within = _scalars(text)
    comments = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = next((m for m in COMMENT.finditer(line) if not _inside(within, number, m.start())), None)
        if match is None:
            continue
        own_line = not line[: match.start()].strip()
        if own_line:
            path = next((path for position, path in starts if position.line > number), "")
        else:
            path = next((path for position, path in reversed(starts) if position.line <= number), "")
        comments.append(Comment(path=path, text=line[match.start() :].rstrip(), own_line=own_line))
    return comments


def write_comments(text: str, document: Document, comments: Iterable[Comment]) -> str:
    """`text`, which holds `document` alone, with the comments at their fields; a field that is not there gets none."""
    lines = text.splitlines()
    before: dict[int, list[str]] = {}
    for comment in comments:
        if not comment.path:
            before.setdefault(len(lines), []).append(comment.text)
            continue
        position = document.positions.get(comment.path)
        if position is None:
            continue
        index = position.line - 1
        if comment.own_line:
            line = lines[index]
            before.setdefault(index, []).append(line[: len(line) - len(line.lstrip())] + comment.text)
        else:
            lines[index] += f"  {comment.text}"
    result = [one for index, line in enumerate(lines) for one in (*before.get(index, ()), line)]
    return "\n".join([*result, *before.get(len(lines), ())]) + "\n"


Span = tuple[tuple[int, int], tuple[int, int]]


def _scalars(text: str) -> list[Span]:
    """(line, column) where each scalar begins and ends; lines from 1, columns from 0."""

    def walk(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
        if isinstance(node, yaml.ScalarNode):
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            for child in node.value:
                for inner in child if isinstance(child, tuple) else (child,):
                    yield from walk(inner)

    seen: set[int] = set()
    nodes = [node for root in yaml.compose_all(text, Loader=yaml.SafeLoader) if root is not None for node in walk(root)]
    return [
        ((n.start_mark.line + 1, n.start_mark.column), (n.end_mark.line + 1, n.end_mark.column))
        for n in nodes
        if n.style is not None or n.start_mark.line != n.end_mark.line
    ]


def _inside(scalars: list[Span], line: int, column: int) -> bool:
    return any(start <= (line, column) < end for start, end in scalars)
