"""`llmd render`: the manifests that the operator would apply for an object."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..api.deployment import LLMDeployment
from ..api.engine import LLMEngine
from ..api.nodes import NodeFacts
from ..api.problems import Refused
from ..desired import (
    build_job,
    cache_claim,
    controller_revision,
    engine_claim,
    fetch_job,
    llm_engine,
    service,
    statefulset,
)
from ..desired.metadata import Manifest
from ..resolve import projection
from ..resolve.defaults import Defaults
from ..resolve.projection import Spec
from ..resolve.resolution import Resolution, resolve
from ..resolve.review import Review
from .documents import read_documents
from .inputs import Knowledge, read_defaults, read_knowledge
from .notes import Level, Note, show_notes
from .objects import Found, sort_out, the_only
from .output import Screen, to_yaml
from .validate import judge, show

NO_UID: Final = "00000000-0000-0000-0000-000000000000"
"""In place of what the API server gives to an object."""
NO_VERSION: Final = "unknown"
"""In place of what the engine image reports about its toolchain."""

Step = tuple[str, Manifest]


def render(source: str, *, model_config: str | None, facts: str | None, config: str | None, namespace: str) -> int:
    """Print the manifests in the order in which they come to be. Raises `BadInput`."""
    defaults = read_defaults(config)
    found, _ = sort_out(read_documents(source))
    one = the_only(found, source)
    knowledge = read_knowledge(model_config, facts) or one.knowledge
    screen = Screen(sys.stderr)
    verdict = judge(one, defaults, knowledge, None)
    if one.spec is None or verdict.problems:
        show(screen, one, verdict)
        return 1
    try:
        steps = list(_steps(one, one.spec, knowledge, defaults, namespace))
    except Refused as refused:
        show(screen, one, Review(problems=refused.problems))
        return 1
    sys.stdout.write("---\n".join(f"# {why}\n{to_yaml(manifest)}" for why, manifest in steps))
    show_notes(screen, _notes(one, knowledge))
    return 0


def resolution_of(
    spec: Spec, knowledge: Knowledge, defaults: Defaults, nodes: Sequence[NodeFacts] | None = None
) -> Resolution:
    """Decide everything; with a placeholder for a toolchain's version that nobody reported. Raises `Refused`."""
    toolchain = projection.toolchain(spec, defaults)
    versions: Mapping[str, str] = knowledge.versions or {toolchain: f"{toolchain}-{NO_VERSION}"}
    return resolve(spec, knowledge.facts, versions, defaults, nodes)


def _steps(one: Found, spec: Spec, knowledge: Knowledge | None, defaults: Defaults, namespace: str) -> Iterator[Step]:
    obj = _as_stored(one, namespace)
    owner = LLMDeployment.of(obj) if one.kind == LLMDeployment.KIND else LLMEngine.of(obj)
    if spec.model_volume is None:
        yield "the namespace's cache of hub models", cache_claim.cache_claim(owner.meta.namespace, defaults)
    yield "finds out what the model is", fetch_job.fetch_job(owner, defaults)
    if isinstance(owner, LLMDeployment):
        yield "addresses of all ranks", service.headless(owner)
        yield "what clients use", service.leader(owner, owner.valid_spec.serving_port)
    if knowledge is None:
        return
    resolution = resolution_of(spec, knowledge, defaults)
    if isinstance(owner, LLMEngine):
        yield from _build(owner, resolution, defaults)
        return
    frozen = controller_revision.freeze(owner, resolution, defaults)
    yield "what was resolved, frozen", controller_revision.controller_revision(owner, frozen)
    engine = llm_engine.llm_engine(owner, resolution, defaults)
    yield "the engine, unless the namespace has one with its key", engine
    yield from _build(LLMEngine.of({**engine, "metadata": {**engine["metadata"], "uid": NO_UID}}), resolution, defaults)
    for ordinal in range(owner.valid_spec.replicas):
        yield f"replica {ordinal}", statefulset.statefulset(owner, frozen, ordinal)


def _build(engine: LLMEngine, resolution: Resolution, defaults: Defaults) -> Iterator[Step]:
    yield "holds the engine", engine_claim.engine_claim(engine, resolution, defaults)
    yield "builds it, one pod per rank", build_job.build_job(engine, resolution, defaults)


def _as_stored(one: Found, namespace: str) -> dict[str, Any]:
    """With what the API server would have added."""
    data = dict(one.document.data)
    written = data["metadata"]
    data["metadata"] = {"uid": NO_UID, "generation": 1, **written, "namespace": written.get("namespace") or namespace}
    return data


def _notes(one: Found, knowledge: Knowledge | None) -> Iterator[Note]:
    if knowledge is None:
        text = (
            "everything that follows from the model (revision, engine, build, replicas): give what the operator found "
            "out with --facts, or the model's config.json with --model-config"
        )
        yield Note(level=Level.NO_PLACE, what=one.title, text=text)
    elif not knowledge.exact:
        text = (
            "the engine's key, and the names made of it, are placeholders: a key needs the checkpoint's digest and the "
            "toolchain's version, which --facts has"
        )
        yield Note(level=Level.WARNING, what=one.title, text=text)
