"""Spec + facts -> Resolution: every decision about one spec, with nothing left open."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping as Versions
from collections.abc import Sequence
from dataclasses import dataclass

from trtllm_engine.contract import (
    BuildArgs,
    BuildRequest,
    Mapping,
    Message,
    ModelFacts,
    ModelSource,
    Target,
    Toolchain,
    engine_folder,
)

from ..api.conditions import Reason
from ..api.engine import LLMEngineSpec
from ..api.engine_options import Device
from ..api.nodes import NodeFacts
from ..api.problems import Adjustment, Problem, Refused
from . import projection
from .defaults import Defaults
from .examination import examine
from .key import engine_key
from .projection import Spec
from .rules.case import Case
from .source import model_source

__all__ = ["Refused", "Resolution", "resolve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution(Message):
    """What is built and how it is spread. Travels as JSON in a ControllerRevision."""

    source: ModelSource
    """A hub model at its commit."""
    facts: ModelFacts
    args: BuildArgs
    mapping: Mapping
    pods: int
    """Of one replica."""
    gpus_per_pod: int
    """That a serving pod requests; 0 on the CPU."""
    toolchain: Toolchain
    toolchain_version: str
    target: Target
    engine_key: str
    """64 hexadecimal digits."""
    image: str
    """That builds."""
    adjustments: tuple[Adjustment, ...] = ()

    def build_request(self) -> BuildRequest:
        """What the build pods are told."""
        return BuildRequest(
            engine_key=self.engine_key,
            model=self.source,
            model_digest=self.facts.digest,
            args=self.args,
            mapping=self.mapping,
            toolchain=self.toolchain,
            toolchain_version=self.toolchain_version,
            target=self.target,
            output=engine_folder(self.engine_key),
        )


def resolve(
    spec: Spec,
    facts: ModelFacts,
    versions: Versions[str, str],
    defaults: Defaults,
    nodes: Sequence[NodeFacts] | None = None,
) -> Resolution:
    """Decide everything; deterministic. `versions`: of the toolchains that the image can run, as the fetch reported.

    Raises `Refused` with every problem.
    """
    found = examine(Case.of(spec, defaults, facts, nodes))
    if problems := [*found.problems, *_check_versions(spec, versions, defaults)]:
        raise Refused(problems)
    chosen = found.chosen
    assert chosen is not None, "a spec without problems whose model is known leaves nothing open"
    source = model_source(spec, defaults)
    if source.repo is not None and facts.commit is not None:
        source = dataclasses.replace(source, revision=facts.commit)
    toolchain, layout = projection.toolchain(spec, defaults), chosen.layout
    return Resolution(
        source=source,
        facts=facts,
        args=chosen.args,
        mapping=chosen.mapping,
        pods=layout.pods,
        gpus_per_pod=0 if projection.device(spec) is Device.CPU else layout.gpus_per_pod,
        toolchain=toolchain,
        toolchain_version=versions[toolchain],
        target=chosen.target,
        engine_key=engine_key(
            source=source,
            facts=facts,
            args=chosen.args,
            mapping=chosen.mapping,
            toolchain=toolchain,
            toolchain_version=versions[toolchain],
            target=chosen.target,
        ),
        image=projection.image(spec, defaults),
        adjustments=found.adjustments,
    )


def _check_versions(spec: Spec, versions: Versions[str, str], defaults: Defaults) -> list[Problem]:
    toolchain, where = projection.toolchain(spec, defaults), projection.options_path(spec)
    image, found = projection.image(spec, defaults), versions.get(toolchain)
    pinned = spec.toolchain_version if isinstance(spec, LLMEngineSpec) else None
    if found is None:
        problem = Problem(
            path=f"{where}.toolchain",
            code=Reason.UNSUPPORTED_BY_TOOLCHAIN,
            message=f"image {image} cannot run toolchain {toolchain}; it has {', '.join(sorted(versions)) or 'none'}",
            hint=f"use one that it has, or set {where}.image to an image with {toolchain}",
        )
    elif pinned not in (None, found):
        problem = Problem(
            path="spec.toolchainVersion",
            code=Reason.UNSUPPORTED_BY_TOOLCHAIN,
            message=f"image {image} has {toolchain} in version {found}, and {pinned} is pinned",
            hint="set spec.image to the image with the pinned version, or create another engine",
        )
    else:
        return []
    return [problem]
