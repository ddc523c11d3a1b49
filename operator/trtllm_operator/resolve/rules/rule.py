"""A rule: one small check with an id, and where it is enforced."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...api.conditions import Reason
from ...api.problems import Caution, Problem
from ..capability import Route
from ..fields import ALL
from .case import Case

Finding = Problem | Caution
Check = Callable[[Case], Iterator[Finding]]


class Stage(enum.StrEnum):
    """The earliest moment at which a rule can be decided."""

    SCHEMA = "schema"
    """By the API server, from the models' types and ranges."""
    SPEC = "spec"
    """At admission, from the spec alone."""
    FACTS = "facts"
    """After inspection of the model."""
    NODES = "nodes"
    """Before the build, from the target that is named, or else from the nodes' labels."""


class Outcome(enum.StrEnum):
    """What comes of it."""

    REFUSES = "refuses"
    WARNS = "warns"
    ADJUSTS = "adjusts"
    CHOOSES = "chooses"
    """Gives a value to what was left open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A rule as the reference page shows it."""

    id: str
    stage: Stage
    outcome: Outcome
    says: str
    fields: tuple[str, ...] = ()
    """Below `spec`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A check and its entry; it is asked only about specs that take one of its routes."""

    entry: Entry
    routes: frozenset[Route]
    check: Check

    def __call__(self, case: Case) -> Iterator[Finding]:
        """Without facts nothing that needs them is judged; a rule about GPUs says nothing where none is known."""
        decidable = self.entry.stage is not Stage.FACTS or case.facts is not None
        if decidable and case.route in self.routes:
            yield from (dataclasses.replace(finding, rule=self.entry.id) for finding in self.check(case))


def rule(
    id: str,
    stage: Stage,
    outcome: Outcome,
    says: str,
    fields: Sequence[str] = (),
    *,
    routes: frozenset[Route] = ALL,
) -> Callable[[Check], Rule]:
    """Make a rule of a check."""
    entry = Entry(id=id, stage=stage, outcome=outcome, says=says, fields=tuple(fields))
    return lambda check: Rule(entry=entry, routes=routes, check=check)


def invalid(path: str, message: str, hint: str) -> Problem:
    """The spec contradicts itself."""
    return Problem(path=path, code=Reason.INVALID_SPEC, message=message, hint=hint)


def unsupported(path: str, message: str, hint: str) -> Problem:
    """The toolchain cannot do it."""
    return Problem(path=path, code=Reason.UNSUPPORTED_BY_TOOLCHAIN, message=message, hint=hint)


def mismatch(path: str, message: str, hint: str) -> Problem:
    """The spec does not fit the model."""
    return Problem(path=path, code=Reason.MODEL_MISMATCH, message=message, hint=hint)


def caution(path: str, message: str) -> Caution:
    return Caution(path=path, message=message)
