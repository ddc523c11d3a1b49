"""`llmd plan`: what would happen for each LLMDeployment of a file. Nothing is written anywhere."""

from __future__ import annotations

import sys
from typing import Any, Final

from ..api.deployment import LLMDeployment, LLMDeploymentSpec
from ..api.problems import Refused
from ..resolve.memory import GIB, MemoryTable
from ..resolve.review import Review
from ..resolve.source import source_hash
from .documents import read_documents
from .failure import BadInput
from .format import Format
from .inputs import Knowledge, read_defaults, read_knowledge, read_nodes
from .objects import Found, sort_out, what
from .outlook import Outlook, look_ahead
from .output import Screen, Style, emit
from .rendering import resolution_of
from .validate import judge, nothing_found, report, show, show_adjustments

BILLION: Final = 1_000_000_000


def plan(
    source: str,
    *,
    model_config: str | None,
    facts: str | None,
    nodes: str | None,
    config: str | None,
    context: bool,
    kubeconfig: str | None,
    namespace: str,
    output: Format | None,
) -> int:
    """Print the plan; the exit code is 1 if a spec is refused. Raises `BadInput`."""
    defaults = read_defaults(config)
    given, seen = read_knowledge(model_config, facts), read_nodes(nodes, defaults.gpu_resource)
    found, skipped = sort_out(read_documents(source))
    deployments = [one for one in found if one.kind == LLMDeployment.KIND]
    if found and not deployments:
        raise BadInput(f"{source}: plan is for LLMDeployments; there is: {', '.join(one.title for one in found)}")
    if not deployments:
        raise BadInput(nothing_found([source], skipped))
    reports, valid = [], True
    for number, one in enumerate(deployments):
        observed = None
        if context:
            from .observed import observe

            observed = observe(
                one.namespace or namespace, one.name, resource=defaults.gpu_resource, kubeconfig=kubeconfig
            )
        nodes_seen = observed.nodes if seen is None and observed else seen
        knowledge = given or one.knowledge
        if knowledge is None and observed and observed.deployment and isinstance(one.spec, LLMDeploymentSpec):
            model = observed.deployment.status.model
            if model is not None and not one.problems and model.source == source_hash(one.spec, defaults):
                knowledge = Knowledge(facts=model.facts, versions=model.versions)
        verdict, outlook = judge(one, defaults, knowledge, nodes_seen), None
        if isinstance(one.spec, LLMDeploymentSpec) and not verdict.problems:
            try:
                resolution = resolution_of(one.spec, knowledge, defaults, nodes_seen) if knowledge else None
                outlook = look_ahead(
                    one.spec,
                    resolution,
                    exact=bool(knowledge and knowledge.exact),
                    defaults=defaults,
                    nodes=nodes_seen,
                    observed=observed,
                )
            except Refused as refused:
                verdict = Review(problems=refused.problems)
        valid = valid and outlook is not None
        if output is None:
            if number:
                sys.stdout.write("\n")
            _show(Screen(sys.stdout), one, verdict, outlook, knowledge)
        else:
            reports.append(_report(one, verdict, outlook))
    if output is None:
        for other in (*(one.document for one in found if one not in deployments), *(rest.document for rest in skipped)):
            Screen(sys.stdout).line(f"{other.at('')}: skipped: {what(other.data)}", indent=4)
    if output is not None:
        emit(sys.stdout, reports[0] if len(reports) == 1 else {"valid": valid, "documents": reports}, output)
    return 0 if valid else 1


def _report(one: Found, verdict: Review, outlook: Outlook | None) -> dict[str, Any]:
    memory = verdict.memory
    return {
        **report(one, verdict),
        "plan": None if outlook is None else outlook.to_json(),
        "memory": None if memory is None else _memory_json(memory),
    }


def _memory_json(memory: MemoryTable) -> dict[str, Any]:
    return {
        "rank": memory.rank,
        "rows": [{"what": r.what, "bytes": r.bytes, "arithmetic": r.arithmetic} for r in memory.rows],
        "neededBytes": memory.needed_bytes,
        "availableBytes": None if memory.gpu is None else memory.gpu.available_bytes,
        "fits": memory.fits,
    }


def _show(screen: Screen, one: Found, verdict: Review, outlook: Outlook | None, knowledge: Knowledge | None) -> None:
    if outlook is None:
        show(screen, one, verdict)
        return
    show(screen, one, Review(cautions=verdict.cautions, adjustments=()))
    screen.table(_rows(one, outlook, knowledge))
    if verdict.memory is not None:
        screen.line()
        _show_memory(screen, verdict.memory)
    if verdict.adjustments:
        screen.line()
        show_adjustments(screen, verdict.adjustments)


def _rows(one: Found, outlook: Outlook, knowledge: Knowledge | None) -> list[tuple[str, str]]:
    assert one.spec is not None
    replicas, engine, room = outlook.replicas, outlook.engine, outlook.room
    model = one.spec.model
    if knowledge is not None:
        facts = knowledge.facts
        model += f" ({facts.architecture}, {facts.parameters / BILLION:.2f} billion parameters, {facts.dtype})"
    key = f", key {engine.key[:12]}" if engine.key else ""
    size = f"each of {_count(replicas.pods, 'pod')} with {_count(replicas.gpus_per_pod, 'GPU')} ({replicas.parallel})"
    rows = [
        ("model", model),
        ("engine", f"{engine.action}: {engine.toolchain}{key}; {engine.text}"),
        *(("", f"differs in {part}") for part in engine.changed),
        *((("claim", f"{engine.storage} for the engine"),) if engine.storage else ()),
        ("replicas", f"{replicas.count}, {size}"),
        ("GPUs", f"{replicas.gpus * replicas.count}, at most {outlook.most_gpus} while a revision is replaced"),
        ("change", outlook.change),
        ("rollout", outlook.rollout),
        ("downtime", "yes, while a revision is replaced: for a time no replica is ready" if outlook.downtime else "no"),
    ]
    if room is not None and replicas.gpus:
        text = (
            f"{_count(room.nodes, 'node')} with {_count(room.gpus, 'GPU')}: room for {_count(room.replicas, 'replica')}"
        )
        rows.append(("nodes", f"{text}, if nothing else runs there"))
    return rows


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _show_memory(screen: Screen, memory: MemoryTable) -> None:
    rows = [(row.what, f"{row.bytes / GIB:.2f} GiB", row.arithmetic) for row in memory.rows]
    verdict = "no node is known" if memory.gpu is None else str(memory.gpu)
    rows.append(("together", f"{memory.needed_bytes / GIB:.2f} GiB", verdict))
    screen.table(rows, head=(f"RANK {memory.rank}", "MEMORY", "FROM"))
    if memory.fits is not None:
        word = screen.style("fits", Style.GOOD) if memory.fits else screen.style("does not fit", Style.BAD)
        screen.line(f"  {word}")
