"""The pictures in the docs show what the command shows, and can be read on their ground."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from tests.capture import FOLDER, PICTURES, SCENES, WIDTHS, look, svg, text

MAKE = "run: python -m tests.capture"
LEAST_CONTRAST = 4.0
"""Between a letter and its ground; 21 is black on white."""


@pytest.mark.parametrize("name", SCENES)
def test_a_text_capture_is_what_the_command_shows(name: str) -> None:
    assert (FOLDER / f"status-{name}.txt").read_text() == text(name), MAKE


def test_the_guide_shows_a_capture() -> None:
    guide = (FOLDER.parent / "guides" / "command-line.md").read_text()
    assert "\n".join(look(SCENES["rollout"], WIDTHS[0], colours=False)) in guide, "paste it out of docs/img"


@pytest.mark.parametrize(("name", "width", "ground"), PICTURES)
def test_a_picture_holds_the_same_letters_in_colours_that_its_ground_carries(
    name: str, width: int, ground: str
) -> None:
    written = (FOLDER / f"status-{name}-{width}-{ground}.svg").read_text()
    ElementTree.fromstring(written)
    assert "url(http" not in written
    lines = [line.rstrip() for line in look(SCENES[name], width, colours=False)]
    assert list(drawn(written)) == ["".join(line.split()) for line in lines], MAKE
    behind = re.search(r'<rect fill="(#\w{6})"', written)
    assert behind is not None
    for colour in re.findall(r"-r\d+ \{ fill: (#\w{6})", written):
        assert contrast(colour, behind[1]) >= LEAST_CONTRAST, colour


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("width", WIDTHS)
def test_colours_move_no_letter(name: str, width: int) -> None:
    plain, coloured = (look(SCENES[name], width, colours=colours) for colours in (False, True))
    assert "\x1b" not in "".join(plain)
    assert "\x1b" in "".join(coloured)
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured] == list(plain)
    assert max(map(len, plain)) <= width


def test_a_picture_can_be_drawn_anew() -> None:
    assert svg(*PICTURES[0]).startswith("<svg")


def drawn(picture: str) -> Iterator[str]:
    """The letters of each line, without spaces, from the top."""
    rows: dict[float, list[tuple[float, str]]] = {}
    matrix = picture[picture.index("-matrix", picture.index("</style>")) :]
    for x, y, said in re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', matrix):
        rows.setdefault(float(y), []).append((float(x), html.unescape(said)))
    for _, parts in sorted(rows.items()):
        line = "".join("".join(said.split()) for _, said in sorted(parts))
        if line:
            yield line


def contrast(one: str, other: str) -> float:
    """As the guidelines for accessible content define it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
