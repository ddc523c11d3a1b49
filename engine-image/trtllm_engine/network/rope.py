"""Rotary position tables (Su et al. 2021, "RoFormer"), with the stretching that a config asks for."""

from __future__ import annotations

import math

import torch

from trtllm_engine.network.config import DecoderConfig, RopeScaling


def frequencies(config: DecoderConfig) -> torch.Tensor:
    """Radians per position, float32 [head_dim / 2]."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    plain = 1.0 / config.rope_theta**exponents
    if config.rope_scaling.type == "linear":
        return plain / config.rope_scaling.factor
    if config.rope_scaling.type == "llama3":
        return _stretch_low(plain, config.rope_scaling)
    return plain


def rope_tables(config: DecoderConfig, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position below `positions`: two float32 [positions, head_dim / 2]."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies(config))
    return angles.cos(), angles.sin()


def _stretch_low(plain: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Llama 3.1: low frequencies divided by the factor, high ones kept, linear in between."""
    wavelength = 2 * math.pi / plain
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((scaling.original_max_positions / wavelength - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - kept) * plain / scaling.factor + kept * plain
