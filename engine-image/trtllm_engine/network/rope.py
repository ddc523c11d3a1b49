"""Rotary position tables (Su et al. 2021, "RoFormer"), with the stretching that a config asks for."""

from __future__ import annotations

import math

import torch

from trtllm_engine.network.config import DecoderConfig, RopeScaling


def frequencies(config: DecoderConfig, positions: int, *, local: bool = False) -> torch.Tensor:
    """Radians per position, float32 [rotated / 2], for sequences of at most `positions`."""
    scaling, rotated = config.rope_scaling, config.rotated
    theta = (config.local_rope_theta if local else None) or config.rope_theta
    plain = 1.0 / theta ** (torch.arange(0, rotated, 2, dtype=torch.float32) / rotated)
    if local:
        return plain
    if scaling.type == "linear":
        return plain / scaling.factor
    if scaling.type == "llama3":
        return _stretch_low(plain, scaling)
    if scaling.type == "yarn":
        return _stretch_ramp(plain, scaling, theta, rotated)
    if scaling.type == "longrope":
        long = positions > scaling.original_max_positions
        return plain / torch.tensor(scaling.long_factors if long else scaling.short_factors)
    return plain


def rope_tables(config: DecoderConfig, positions: int, *, local: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position below `positions`: two float32 [positions, rotated / 2].

    `local`: those of the layers whose base is `local_rope_theta`.
    """
    factor = 1.0 if local else config.rope_scaling.attention_factor
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies(config, positions, local=local))
    return angles.cos() * factor, angles.sin() * factor


def _stretch_low(plain: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Llama 3.1: low frequencies divided by the factor, high ones kept, linear in between."""
    wavelength = 2 * math.pi / plain
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((scaling.original_max_positions / wavelength - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - kept) * plain / scaling.factor + kept * plain


def _stretch_ramp(plain: torch.Tensor, scaling: RopeScaling, theta: float, rotated: int) -> torch.Tensor:
    """YaRN (Peng et al. 2023): the first dimensions, which turn fast, are kept, the last are divided by the factor."""

    def dimension(turns: float) -> float:
        """Which dimension turns that often within the original context."""
        return rotated * math.log(scaling.original_max_positions / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotated - 1)
    width = high - low or 0.001
    stretched = ((torch.arange(rotated // 2, dtype=torch.float32) - low) / width).clamp(0.0, 1.0)
    return stretched * plain / scaling.factor + (1 - stretched) * plain
