"""A tree of lines with colours, and how it becomes text of a given width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from .output import NARROWEST, Screen, Style

GAP: Final = "  "
"""Between two parts of a line."""


@dataclass(frozen=True, slots=True)
class Span:
    """Text that looks the same from end to end."""

    text: str
    style: Style | None = None


Line = tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A line, and what hangs below it."""

    line: Line
    right: str = ""
    """Stands at the right edge where there is room, else on a line of its own."""
    below: tuple[Branch, ...] = ()


def joined(*parts: Span | str) -> Line:
    """The parts that say something, with a gap between two."""
    spans = [part if isinstance(part, Span) else Span(part) for part in parts]
    line: list[Span] = []
    for span in spans:
        if span.text:
            line += [Span(GAP), span] if line else [span]
    return tuple(line)


def draw(screen: Screen, branch: Branch) -> list[str]:
    """The lines of the whole tree; none is wider than the screen, if that is a terminal."""
    return [screen.letters(line) for line in _draw(screen, branch, "", "")]


def _draw(screen: Screen, branch: Branch, head: str, rest: str) -> Iterator[str]:
    """`head` stands before the first line, `rest` before all others."""
    more = rest + ("│  " if branch.below else "   ")
    for number, line in enumerate(_lines(branch, screen.width - len(more))):
        yield (more if number else head) + "".join(_styled(screen, line)).rstrip()
    for number, child in enumerate(branch.below, 1):
        last = number == len(branch.below)
        yield from _draw(screen, child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _lines(branch: Branch, width: int) -> list[Line]:
    lines = _wrapped(branch.line, width)
    if not branch.right:
        return lines
    right, space = Span(branch.right, Style.FAINT), width - _length(lines[-1]) - len(branch.right)
    if width > 0 and space < len(GAP):
        return [*lines, *_wrapped((right,), width)]
    return [*lines[:-1], (*lines[-1], Span(" " * max(len(GAP), space)), right)]


def _length(line: Line) -> int:
    return sum(len(span.text) for span in line)


def _wrapped(line: Line, width: int) -> list[Line]:
    """Broken at spaces; a word that is wider than the line is broken anywhere. A width of 0 or less is none."""
    letters = [Span(letter, span.style) for span in line for letter in span.text]
    if width <= 0:
        return [tuple(letters)]
    width, lines = max(width, NARROWEST), []
    while len(letters) > width:
        spaces = [i for i in range(1, width + 1) if letters[i].text == " "]
        cut = spaces[-1] if spaces else width
        lines.append(tuple(letters[:cut]))
        letters = letters[cut:]
        while letters and letters[0].text == " ":
            letters = letters[1:]
    return [*lines, tuple(letters)]


def _styled(screen: Screen, letters: Sequence[Span]) -> Iterator[str]:
    """Letters of one look are put together again."""
    start = 0
    for end in range(1, len(letters) + 1):
        if end == len(letters) or letters[end].style != letters[start].style:
            text, style = "".join(letter.text for letter in letters[start:end]), letters[start].style
            yield text if style is None else screen.style(text, style)
            start = end
