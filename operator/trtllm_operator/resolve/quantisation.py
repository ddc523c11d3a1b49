"""Schemes of quantisation: what they have in common, by name, and which ranks can share their groups."""

from __future__ import annotations

from collections.abc import Mapping as Values
from typing import Final

from trtllm_engine.contract import Mapping, ModelFacts

OWN_GROUPS: Final[Values[str, tuple[int, ...]]] = {"W4A16": (128, 64, 32)}
"""Columns that may share a scale on the own toolchains, the most first; with other schemes it is all of a row."""
GROUP_WISE: Final = frozenset({"W4A16_AWQ", "W4A8_AWQ", "W8A16_GPTQ", "W4A16_GPTQ", "W4A8_QSERVE_PER_GROUP"})
"""Weights along the input share a scale in groups."""
FP8_ATTENTION: Final = frozenset({"FP8", "W4A8_AWQ", "NVFP4"})
"""Models whose prompt attention can be in FP8."""
WITHOUT_CALIBRATION: Final = frozenset({"W8A16", "W4A16", "FP8_PER_CHANNEL_PER_TOKEN"})
"""Scales follow from the weights alone."""


def widths(facts: ModelFacts, mapping: Mapping) -> dict[str, int]:
    """Columns that a rank holds of the matrices of the layers, by what the matrix reads."""
    all_sparse = facts.num_layers * facts.experts * 3 * facts.hidden_size * facts.expert_intermediate_size
    found = {
        "residual stream": facts.hidden_size,
        "attention's heads": facts.num_attention_heads * facts.head_dim // mapping.tp,
    }
    if not facts.experts or facts.expert_parameters < all_sparse:
        found["feed-forward layer"] = facts.intermediate_size // mapping.tp
    if facts.experts:
        found["experts' layer"] = facts.expert_intermediate_size // mapping.expert_sizes[0]
    return found


def cut(facts: ModelFacts, mapping: Mapping, group: int | None) -> str | None:
    """What the matrix reads of which a rank's columns are no whole groups; None: there is none."""
    return next((what for what, width in widths(facts, mapping).items() if width % (group or width)), None)


def whole_groups(facts: ModelFacts, mapping: Mapping, algo: str) -> tuple[int, ...]:
    """Group sizes of the scheme that no rank's share cuts, the largest first."""
    return tuple(group for group in OWN_GROUPS.get(algo, ()) if cut(facts, mapping, group) is None)
