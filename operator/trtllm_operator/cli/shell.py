"""Commands out of a shell script: continuation lines, comments, variables, and what stands before the program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .failure import BadInput

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")
OPERATORS = frozenset("();<>|&")
HEREDOC = re.compile(r"<<(?P<tabs>-?)\s*['\"]?(?P<word>[A-Za-z_][A-Za-z0-9_]*)['\"]?")
TARGET = re.compile(r"(?:>>?|\btee(?:\s+-a)?)\s*(?P<path>[^\s<>|&;]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One simple command."""

    words: tuple[str, ...]
    line: int
    """Of its first word, from 1; 0: it came as arguments."""
    comments: tuple[str, ...] = ()
    """The comment lines right above it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Assigned in the script before it."""

    def find(self, programs: Sequence[str]) -> int | None:
        """Index of the word that is one of `programs`, whatever stands before it."""
        names = (word.rsplit("/", 1)[-1] for word in self.words)
        return next((index for index, name in enumerate(names) if name in programs), None)

    def expanded(self, word: str) -> str:
        """With the script's own variables in it; others stay as they are."""

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[3]
            default = match[0] if match[2] is None else match[2]
            return self.variables.get(name, default)

        return VARIABLE.sub(value, word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a script runs, and what it writes before."""

    commands: tuple[Command, ...]
    files: Mapping[str, str]
    """Files that it writes from its own lines (`cat > options.yaml <<EOF`), by path."""


def read_script(text: str, source: str) -> Script:
    """Every simple command of a script. Raises `BadInput` for a quote that is never closed."""
    commands: list[Command] = []
    files: dict[str, str] = {}
    variables: dict[str, str] = {}
    comments: list[str] = []
    numbered = _without_heredocs(enumerate(text.splitlines(), start=1), files)
    for line, logical, above in _logical_lines(numbered):
        comments = [*comments, *above] if above else comments
        if not logical.strip():
            comments = comments if above else []
            continue
        try:
            words = list(_lexer(logical))
        except ValueError as error:
            raise BadInput(f"{source}:{line}: {str(error).lower()}") from error
        for simple in _simple_commands(words):
            rest = [*simple]
            while rest and (rest[0] == "export" or ASSIGNMENT.match(rest[0])):
                name, _, value = rest.pop(0).partition("=")
                if name != "export":
                    value = Command(words=(), line=line, variables=variables).expanded(value)
                    variables[name] = value
            if rest:
                commands.append(
                    Command(words=tuple(simple), line=line, comments=tuple(comments), variables=dict(variables))
                )
        comments = []
    return Script(commands=tuple(commands), files=files)


def _lexer(text: str) -> shlex.shlex:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return lexer


def _simple_commands(words: Sequence[str]) -> Iterator[list[str]]:
    """Split at operators; a redirection and its target are no arguments."""
    current: list[str] = []
    skip = False
    for word in words:
        if word and set(word) <= OPERATORS:
            if set(word) & set("<>"):
                if current and current[-1] in ("1", "2"):
                    current.pop()
                skip = True
                continue
            yield current
            current = []
        elif skip:
            skip = False
        else:
            current.append(word)
    yield current


def _logical_lines(numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str, list[str]]]:
    """(first line, text, comment lines above and in it), with continuation lines joined.

    A comment line between continuation lines, which a shell would stumble over, is taken as a comment.
    """
    text, start, comments, joined = "", 1, [], False
    for number, line in numbered:
        quoted = _open_quote(text)
        if not quoted and line.lstrip().startswith("#"):
            if not line.startswith("#!"):
                comments.append(line.strip())
            if not joined:
                yield number, "", comments
                comments = []
            continue
        if not (quoted or joined):
            start = number
        rest = line if quoted else _without_comment(line)
        joined = rest.rstrip().endswith("\\")
        text += ("\n" if quoted else "") + (rest.rstrip().removesuffix("\\") + " " if joined else rest)
        if not joined and not _open_quote(text):
            yield start, text, comments
            text, comments = "", []
    if text:
        yield start, text, comments


def _without_heredocs(lines: Iterator[tuple[int, str]], files: dict[str, str]) -> Iterator[tuple[int, str]]:
    """The lines that are commands; what a command writes to a file from the lines after it goes to `files`."""
    for number, line in lines:
        yield number, line
        match = HEREDOC.search(_without_comment(line))
        if match is None:
            continue
        content = []
        for _, inner in lines:
            if (inner.strip() if match["tabs"] else inner) == match["word"]:
                break
            content.append(inner.lstrip("\t") if match["tabs"] else inner)
        target = TARGET.search(line)
        if target is not None:
            files[target["path"].strip("'\"")] = "\n".join(content) + "\n"


def _without_comment(line: str) -> str:
    quote = ""
    for index, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (index == 0 or line[index - 1].isspace()):
            return line[:index]
    return line


def _open_quote(text: str) -> bool:
    try:
        list(_lexer(text))
    except ValueError:
        return True
    return False
