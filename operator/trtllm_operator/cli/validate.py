"""`llmd validate`: everything that is wrong with the objects of a file, in one answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..api.nodes import NodeFacts
from ..api.problems import Adjustment, Caution, Problem
from ..resolve.defaults import Defaults
from ..resolve.review import Review, review, review_part
from .documents import read_documents
from .failure import BadInput
from .format import Format
from .inputs import Knowledge, read_defaults, read_knowledge, read_nodes
from .objects import MODELS, Found, Skipped, sort_out
from .output import Screen, Style, emit


def validate(
    sources: Sequence[str],
    *,
    model_config: str | None,
    facts: str | None,
    nodes: str | None,
    config: str | None,
    output: Format | None,
) -> int:
    """Print the verdict; the exit code is 1 if anything is refused. Raises `BadInput`."""
    defaults = read_defaults(config)
    knowledge, seen = read_knowledge(model_config, facts), read_nodes(nodes, defaults.gpu_resource)
    found: list[Found] = []
    skipped: list[Skipped] = []
    for source in sources:
        ours, rest = sort_out(read_documents(source))
        found += ours
        skipped += rest
    if not found:
        raise BadInput(nothing_found(sources, skipped))
    judged = [(one, judge(one, defaults, knowledge or one.knowledge, seen)) for one in found]
    valid = not any(verdict.problems for _, verdict in judged)
    if output is None:
        screen = Screen(sys.stdout)
        for one, verdict in judged:
            show(screen, one, verdict)
        for other in skipped:
            screen.line(f"{other.document.at('')}: skipped: {other.what}", indent=4)
    else:
        reports = [report(one, verdict) for one, verdict in judged]
        emit(sys.stdout, reports[0] if len(reports) == 1 else {"valid": valid, "documents": reports}, output)
    return 0 if valid else 1


def nothing_found(sources: Sequence[str], skipped: Sequence[Skipped]) -> str:
    """Why a file cannot be worked on."""
    names = ", ".join(sources)
    if any(other.what == "an object without a kind" for other in skipped):
        return (
            f"{names}: holds no {' or '.join(MODELS)}, but an object without apiVersion and kind; "
            "options of TensorRT-LLM become an LLMDeployment with: llmd import FILE --model MODEL"
        )
    others = f"; there is: {', '.join(other.what for other in skipped)}" if skipped else ""
    return f"{names}: holds no {' or '.join(MODELS)}{others}"


def judge(found: Found, defaults: Defaults, knowledge: Knowledge | None, nodes: Sequence[NodeFacts] | None) -> Review:
    """The object's own problems, then what the rules say of its spec, or of the part that can be read."""
    facts = knowledge.facts if knowledge else None
    if found.spec is None:
        data = found.document.data.get("spec")
        data = {} if data is None else data
        return review_part(MODELS[found.kind], data, found.problems, defaults, facts, nodes)
    judged = review(found.spec, defaults, facts, nodes)
    if not found.problems:
        return judged
    return Review(problems=(*found.problems, *judged.problems), cautions=judged.cautions)


def report(found: Found, verdict: Review) -> dict[str, Any]:
    """One object's verdict for machines."""
    return {
        "kind": found.kind,
        "name": found.name,
        "file": found.document.source,
        "valid": not verdict.problems,
        "errors": [_error(found, problem) for problem in verdict.problems],
        "warnings": [_warning(found, caution) for caution in verdict.cautions],
        "adjustments": [change(adjustment) for adjustment in verdict.adjustments],
        "resolved": None if verdict.resolved is None else dict(verdict.resolved),
    }


def _error(found: Found, problem: Problem) -> dict[str, Any]:
    return _placed(
        found, problem.path, code=str(problem.code), message=problem.message, hint=problem.hint, rule=problem.rule
    )


def _warning(found: Found, caution: Caution) -> dict[str, Any]:
    return _placed(found, caution.path, message=caution.message, rule=caution.rule)


def _placed(found: Found, path: str, **fields: str | None) -> dict[str, Any]:
    position = found.document.position(path)
    said: Mapping[str, Any] = {name: text for name, text in fields.items() if text is not None}
    return {"path": path, **said, "line": position.line, "column": position.column}


def change(adjustment: Adjustment) -> dict[str, Any]:
    """One adjustment for machines; `from` is null for a field that was not written."""
    return {
        "path": adjustment.path,
        "from": adjustment.from_value,
        "to": adjustment.to_value,
        "reason": adjustment.reason,
        "rule": adjustment.rule,
    }


def show(screen: Screen, found: Found, verdict: Review) -> None:
    """One object's verdict for people: findings in the order of the file, then what was chosen."""
    document = found.document
    for problem in sorted(verdict.problems, key=lambda p: document.position(p.path)):
        text = f"{problem.path}: {problem.message}" + (f" [{problem.rule}]" if problem.rule else "")
        screen.finding(document.at(problem.path), "error", Style.BAD, text, problem.hint)
    for caution in sorted(verdict.cautions, key=lambda c: document.position(c.path)):
        text = f"{caution.path}: {caution.message}" + (f" [{caution.rule}]" if caution.rule else "")
        screen.finding(document.at(caution.path), "warning", Style.DOUBTFUL, text, None)
    screen.line(f"{document.name}: {found.title}: {_verdict(screen, verdict)}")
    show_adjustments(screen, verdict.adjustments)


def show_adjustments(screen: Screen, adjustments: Sequence[Adjustment]) -> None:
    """Field, from and to, why."""
    rows = [
        (a.path.removeprefix("spec."), f"{a.from_value or 'unset'} -> {a.to_value}", _because(a)) for a in adjustments
    ]
    screen.table(rows, head=("FIELD", "CHOSEN", "WHY"))


def _because(adjustment: Adjustment) -> str:
    return adjustment.reason + (f" [{adjustment.rule}]" if adjustment.rule else "")


def _verdict(screen: Screen, verdict: Review) -> str:
    counts = [_count(len(verdict.problems), "error"), _count(len(verdict.cautions), "warning")]
    counts.append(_count(len(verdict.adjustments), "value chosen", "values chosen"))
    told = ", ".join(count for count in counts if count)
    word = screen.style("refused", Style.BAD) if verdict.problems else screen.style("valid", Style.GOOD)
    return word + (f" ({told})" if told else "")


def _count(number: int, one: str, many: str | None = None) -> str:
    return "" if not number else f"1 {one}" if number == 1 else f"{number} {many or one + 's'}"
