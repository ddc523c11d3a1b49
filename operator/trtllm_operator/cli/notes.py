"""What a conversion tells beside its result: on standard error, so that the result can be piped."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from .output import Screen, Style, visible


class Level(enum.Enum):
    """How much a note matters."""

    TRANSLATED = "translated", Style.FAINT
    """The same under another name."""
    WARNING = "warning", Style.DOUBTFUL
    """Kept, with another meaning than before, or with a guess in it."""
    NO_PLACE = "left out", Style.DOUBTFUL
    """Not in the result."""
    REFUSED = "refused", Style.DOUBTFUL
    """In the result, and this version does not take it."""
    ERROR = "error", Style.BAD
    """The result is refused because of it."""

    def __init__(self, word: str, style: Style) -> None:
        self.word = word
        self.style = style


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One remark about one thing of the input."""

    level: Level
    what: str
    """As it stands in the input, with its place: `options.yaml:3: tp_size`, or `--tp_size 2`."""
    text: str


def show_notes(screen: Screen, notes: Iterable[Note]) -> None:
    """One line each, in the order of the input."""
    for note in notes:
        head, said = f"{note.level.word}:", visible(f"{note.what}: {note.text}")
        screen.line(f"{head} {said}", indent=4, shown=(head, screen.style(head, note.level.style)))


def exit_code(notes: Iterable[Note], *, strict: bool) -> int:
    """1 for errors; with `strict` also for whatever does not mean the same any more."""
    bad = {Level.ERROR} | ({Level.WARNING, Level.NO_PLACE} if strict else set())
    return 1 if any(note.level in bad for note in notes) else 0
