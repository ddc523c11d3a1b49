"""Everything that can be said about a spec at once: for admission, the command line and status. It never raises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trtllm_engine.contract import ModelFacts

from ..api.deployment import LLMDeployment, LLMDeploymentSpec
from ..api.engine import LLMEngine, LLMEngineSpec
from ..api.nodes import NodeFacts
from ..api.problems import Adjustment, Caution, Problem
from ..api.schema import Unread
from .defaults import Defaults
from .examination import ask, examine
from .legible import Part, legible
from .memory import MemoryTable
from .projection import Spec
from .rules.case import Case

UNHEARD: Final = Caution(
    path="spec",
    message="rules about what cannot be read were not checked: mend these errors, and they are checked too",
)


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


def review_object(
    obj: LLMDeployment | LLMEngine,
    defaults: Defaults,
    facts: ModelFacts | None = None,
    nodes: Sequence[NodeFacts] | None = None,
) -> Review:
    """Judge an object as it is stored, whether its spec parses or not."""
    if obj.spec is None:
        model = LLMDeploymentSpec if isinstance(obj, LLMDeployment) else LLMEngineSpec
        return review_part(model, obj.written, obj.problems, defaults, facts, nodes)
    return review(obj.spec, defaults, facts, nodes)


def review_part(
    model: type[Spec],
    data: Any,
    problems: Sequence[Problem],
    defaults: Defaults,
    facts: ModelFacts | None = None,
    nodes: Sequence[NodeFacts] | None = None,
) -> Review:
    """Of a spec that does not parse, with `problems`: the rules are asked about what can be read of it.

    A rule that asks for anything else is not heard, and that is said.
    """
    part = legible(model, data)
    if part is None:
        return Review(problems=tuple(problems), cautions=(UNHEARD,))
    case, whole = _case(part, defaults, facts, nodes)
    said = ask(case)
    cautions = said.cautions if said.complete and whole else (UNHEARD, *said.cautions)
    return Review(problems=(*problems, *said.problems), cautions=cautions)


def _case(
    part: Part, defaults: Defaults, facts: ModelFacts | None, nodes: Sequence[NodeFacts] | None
) -> tuple[Case, bool]:
    """Without nodes, and False, if it cannot be read which of them are meant."""
    try:
        return Case.of(part.spec, defaults, facts, nodes, part.unread), True
    except Unread:
        return Case.of(part.spec, defaults, facts, None, part.unread), False


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
