"""A tree of lines with colours, and how it becomes text of a given width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from .output import NARROWEST, Screen, Style

GAP: Final = "  "
"""Between two parts of a line."""
MOST_PADDED: Final = 40
"""Columns of a part below which shorter ones are filled up."""


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
    first, others = screen.width - len(head), screen.width - len(more)
    for number, line in enumerate(_lines(branch, first, others)):
        yield (more if number else head) + "".join(_styled(screen, line)).rstrip()
    for number, child in enumerate(branch.below, 1):
        last = number == len(branch.below)
        yield from _draw(screen, child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _lines(branch: Branch, first: int, others: int) -> list[Line]:
    """`first` and `others`: columns that there are for the first line, and for those below it."""
    lines = _wrapped(branch.line, first, others)
    if not branch.right:
        return lines
    width = first if len(lines) == 1 else others
    right, space = Span(branch.right, Style.FAINT), width - _length(lines[-1]) - len(branch.right)
    if width > 0 and space < len(GAP):
        return [*lines, *_wrapped((right,), others, others)]
    return [*lines[:-1], (*lines[-1], Span(" " * max(len(GAP), space)), right)]


def _length(line: Line) -> int:
    return sum(len(span.text) for span in line)


def _wrapped(line: Line, first: int, others: int) -> list[Line]:
    """Broken where `_cut` says. A width of 0 or less is none."""
    letters = [Span(letter, span.style) for span in line for letter in span.text]
    if first <= 0:
        return [tuple(letters)]
    width, lines = max(first, NARROWEST), list[Line]()
    while len(letters) > width:
        cut = _cut("".join(letter.text for letter in letters[: width + 1]), width)
        lines.append(tuple(letters[:cut]))
        letters, width = letters[cut:], max(others, NARROWEST)
        while letters and letters[0].text == " ":
            letters = letters[1:]
    return [*lines, tuple(letters)]


def _cut(text: str, width: int) -> int:
    """Where a line ends that is too long: between two parts, if that leaves it at least half full; else at the last
    space, and before a dot that leads on rather than after it; a word that is wider than the line is cut anywhere."""
    gap = text.rfind(GAP, width // 2)
    if gap > 0:
        return gap
    space = text.rfind(" ", 1)
    if text[:space].endswith(" ·"):
        space = text.rfind(" ", 1, space)
    return space if space > 0 else width


def aligned(rows: Sequence[Sequence[Span]]) -> list[Line]:
    """Rows with the same parts, one under the other, as far as no part of a row is long."""
    widths = [max(len(part.text) for part in column) for column in zip(*rows, strict=True)]
    end = next((i for i, width in enumerate(widths) if width > MOST_PADDED), len(widths))
    used = [i for i in range(end) if widths[i]]
    lines = []
    for row in rows:
        padded = [Span(row[i].text.ljust(widths[i]), row[i].style) for i in used]
        last = max((i for i, part in enumerate(padded) if part.text.strip()), default=-1)
        lines.append(joined(*(padded if any(p.text for p in row[end:]) else padded[: last + 1]), *row[end:]))
    return lines


def _styled(screen: Screen, letters: Sequence[Span]) -> Iterator[str]:
    """Letters of one look are put together again."""
    start = 0
    for end in range(1, len(letters) + 1):
        if end == len(letters) or letters[end].style != letters[start].style:
            text, style = "".join(letter.text for letter in letters[start:end]), letters[start].style
            yield text if style is None else screen.style(text, style)
            start = end
