"""What people and machines read: colours, wrapping and tables on a terminal, plain lines anywhere else, JSON, YAML."""

from __future__ import annotations

import enum
import json
import os
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

import yaml

from .documents import IMPLICIT
from .format import Format


class Style(enum.StrEnum):
    """SGR parameters of a terminal. Bold yellow and green are too bright to be read on a light ground."""

    BAD = "1;31"
    DOUBTFUL = "33"
    GOOD = "32"
    STRONG = "1"
    FAINT = "2"


UNSEEN_BREAKS: Final = frozenset("\x85\u2028\u2029\ufeff")
PLAIN: Final = {
    "├": "|",
    "└": "`",
    "│": "|",
    "─": "-",
    "✓": "+",
    "✗": "x",
    "◐": "*",
    "█": "#",
    "░": ".",
    "·": "-",
    "→": ">",
    "×": "x",
}
"""What is drawn with, and its stand-ins."""
_IN_ASCII: Final = str.maketrans(PLAIN)
NARROWEST: Final = 24
"""Columns that the last column of a table gets at least; with less it goes below the others."""


def visible(text: str) -> str:
    """`text` without anything that a terminal would obey: what a file holds must not write on the screen."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


class Screen:
    """A stream that people read. `NO_COLOR` and `TERM=dumb` switch colours off."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.terminal = stream.isatty()
        self.colours = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        size = shutil.get_terminal_size()
        self.width = size.columns if self.terminal else 0
        """0: lines are as long as they are."""
        self.height = size.lines
        self._plain = not _can_say(getattr(stream, "encoding", None) or "utf-8", "".join(PLAIN))

    def letters(self, text: str) -> str:
        """`text` in letters that the stream has: without Unicode, ASCII of the same width."""
        return text.translate(_IN_ASCII) if self._plain else text

    def style(self, text: str, style: Style) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colours and text else text

    def line(self, text: str = "", indent: int = 0, shown: tuple[str, str] = ("", "")) -> None:
        """One line, wrapped on a terminal; what is wrapped stands `indent` columns further in.

        `shown`: a part of the text and how it looks; colours must not count when lines are broken.
        """
        lines = "\n".join(self._wrapped(text, self.width, indent))
        self._stream.write(lines.replace(*shown, 1) + "\n")

    def finding(self, where: str, level: str, style: Style, text: str, hint: str | None) -> None:
        """`file:line:column: error: text`, as compilers write it, and the remedy below."""
        word = f" {level}:"
        self.line(f"{where}:{word} {visible(text)}", indent=4, shown=(word, f" {self.style(word[1:], style)}"))
        if hint:
            self.line(f"    hint: {visible(hint)}", indent=10)

    def table(self, rows: Sequence[Sequence[str]], head: Sequence[str] = (), indent: int = 2) -> None:
        """Columns as wide as they must be; the last one takes the rest of the line, or the next lines."""
        if not rows:
            return
        cells = [list(row) for row in ([head, *rows] if head else rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]) - 1)]
        start = indent + sum(widths) + 2 * len(widths)
        below = bool(self.width) and self.width - start < min(NARROWEST, max(len(row[-1]) for row in cells))
        for number, row in enumerate(cells):
            left = " " * indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
            if below:
                self._row(left.rstrip(), bool(head) and number == 0)
                self.line(" " * (indent + 4) + row[-1], indent=indent + 4)
            else:
                lines = self._wrapped(row[-1], self.width - start if self.width else 0, 0)
                text = f"{left}  {lines[0]}" if widths else left + lines[0]
                self._row(text.rstrip(), bool(head) and number == 0)
                for more in lines[1:]:
                    self.line(" " * start + more)

    def _row(self, text: str, is_head: bool) -> None:
        self._stream.write((self.style(text, Style.FAINT) if is_head else text) + "\n")

    @staticmethod
    def _wrapped(text: str, width: int, indent: int) -> list[str]:
        if not width or len(text) <= width:
            return [text]
        return textwrap.wrap(
            text,
            max(width, NARROWEST),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        )


def _can_say(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def emit(stream: TextIO, data: Any, chosen: Format) -> None:
    """One document for machines."""
    if chosen is Format.JSON:
        stream.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    else:
        stream.write(to_yaml(data))


def to_yaml(data: Any) -> str:
    """YAML that reads as it would be written by hand."""
    text: str = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=False
    )
    return text


def to_yaml_documents(documents: Iterable[Any]) -> str:
    return "---\n".join(map(to_yaml, documents))


class _Dumper(yaml.SafeDumper):
    """Lists stand inside of their key; no anchors, which hand-written manifests do not have."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Quoted and escaped if it holds what other readers take for a line break."""
        style = '"' if UNSEEN_BREAKS & set(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)
# What any reader may take for a number, a date or a truth is quoted: ours and PyYAML's differ.
for _tag, _pattern, _letters in IMPLICIT:
    _Dumper.add_implicit_resolver(_tag, _pattern, _letters)
