"""All rules, in the order in which a spec is judged within one stage."""

from __future__ import annotations

from typing import Final

from . import (
    adapters,
    formats,
    kv_cache,
    model,
    parallel,
    plugins,
    pods,
    pytorch,
    quantisation,
    sizes,
    speculation,
    tokens,
)
from . import toolchain as toolchains
from .rule import Rule

RULES: Final[tuple[Rule, ...]] = (
    *model.RULES,
    *formats.RULES,
    *parallel.RULES,
    *toolchains.RULES,
    *pods.RULES,
    *sizes.RULES,
    *tokens.RULES,
    *plugins.RULES,
    *quantisation.RULES,
    *speculation.RULES,
    *adapters.RULES,
    *kv_cache.RULES,
    *pytorch.RULES,
)
"""Every rule that is a check. Those that are claims or choices are in `claims`, `arbitration` and `fit`."""
