"""Everything that can be said about a spec at once: for admission, the command line and status. It never raises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trtllm_engine.contract import ModelFacts

from ..api.nodes import NodeFacts
from ..api.problems import Adjustment, Caution, Problem
from .defaults import Defaults
from .examination import examine
from .memory import MemoryTable
from .projection import Spec
from .rules.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What is wrong, what is doubtful, what was chosen, and what it comes to."""

    problems: tuple[Problem, ...] = ()
    cautions: tuple[Caution, ...] = ()
    adjustments: tuple[Adjustment, ...] = ()
    resolved: Mapping[str, Any] | None = None
    """The effective LlmArgs in camelCase; None without the model's facts, or if the spec is refused."""
    memory: MemoryTable | None = None
    """None without the model's facts."""


def unread(problems: Sequence[Problem]) -> Review:
    """Of a spec that does not parse: no rule could be asked about it, and the answer says so."""
    said = "only names, types and ranges were checked: mend these errors, and the other rules are checked too"
    return Review(problems=tuple(problems), cautions=(Caution(path="spec", message=said),))


def review(
    spec: Spec, defaults: Defaults, facts: ModelFacts | None = None, nodes: Sequence[NodeFacts] | None = None
) -> Review:
    """Judge a spec. What cannot be known without the model or the nodes is not judged."""
    found = examine(Case.of(spec, defaults, facts, nodes))
    return Review(
        problems=found.problems,
        cautions=found.cautions,
        adjustments=found.adjustments,
        resolved=found.resolved,
        memory=found.memory,
    )
