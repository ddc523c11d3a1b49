"""Schemes of quantisation: what they have in common, by name."""

from __future__ import annotations

from typing import Final

GROUP_WISE: Final = frozenset({"W4A16_AWQ", "W4A8_AWQ", "W8A16_GPTQ", "W4A16_GPTQ", "W4A8_QSERVE_PER_GROUP"})
"""Weights along the input share a scale in groups."""
FP8_ATTENTION: Final = frozenset({"FP8", "W4A8_AWQ", "NVFP4"})
"""Models whose prompt attention can be in FP8."""
WITHOUT_CALIBRATION: Final = frozenset({"W8A16", "W4A16", "FP8_PER_CHANNEL_PER_TOKEN"})
"""Scales follow from the weights alone."""
