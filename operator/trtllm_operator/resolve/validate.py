"""Everything that is wrong with a spec as far as it can be known without the model."""

from __future__ import annotations

from ..api.deployment import LLMDeploymentSpec
from ..api.engine import LLMEngineSpec
from ..api.problems import Problem
from .defaults import Defaults
from .examination import examine
from .rules.case import Case


def check_deployment(spec: LLMDeploymentSpec, defaults: Defaults) -> list[Problem]:
    """Of an LLMDeployment."""
    return list(examine(Case.of(spec, defaults)).problems)


def check_engine(spec: LLMEngineSpec, defaults: Defaults) -> list[Problem]:
    """Of an LLMEngine."""
    return list(examine(Case.of(spec, defaults)).problems)
