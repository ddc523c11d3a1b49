"""Gemma 3, text only: Gemma 2 with normalised queries and keys instead of capped scores, and two rotary bases."""

from __future__ import annotations

import dataclasses
from typing import Final

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import ConfigReader, DecoderConfig, JsonObject, RopeScaling, read_rope_section
from trtllm_engine.network.families.family import FULL, HEAD_NORM_NAMES, SLIDING, Family, sliding_layers, windowed
from trtllm_engine.network.families.gemma2 import NAMES as GEMMA2_NAMES
from trtllm_engine.network.families.gemma2 import cap, read_gemma

GLOBAL_THETA, LOCAL_THETA = 1e6, 1e4
"""What transformers takes where config.json says nothing."""


def read_config(raw: JsonObject) -> DecoderConfig:
    reader = ConfigReader(raw)
    scaling_of_both = {"rope_parameters": None, "rope_scaling": None}
    config = read_gemma({**raw, **scaling_of_both}, FAMILY.name, FAMILY.architecture)
    theta, scaling, local_theta = _read_ropes(reader, config.max_positions)
    config = dataclasses.replace(
        config,
        head_norms=True,
        logit_cap=cap(raw, "final_logit_softcapping", None),
        rope_theta=theta,
        rope_scaling=scaling,
        local_rope_theta=local_theta,
    )
    pattern = reader.integer("sliding_window_pattern", 6)
    return windowed(
        config,
        raw.get("sliding_window", 4096),
        sliding_layers(reader, config, lambda layer: (layer + 1) % pattern != 0),
    )


def _read_ropes(reader: ConfigReader, max_positions: int) -> tuple[float, RopeScaling, float]:
    """Base and scaling of the full layers, and base of the windowed ones."""
    if "rope_parameters" not in reader:
        theta, scaling = read_rope_section(reader, reader.section("rope_scaling"), max_positions, GLOBAL_THETA)
        return theta, scaling, reader.number("rope_local_base_freq", LOCAL_THETA)
    both = reader.section("rope_parameters")
    theta, scaling = read_rope_section(reader, both.section(FULL), max_positions, GLOBAL_THETA)
    local_theta, local_scaling = read_rope_section(both, both.section(SLIDING), max_positions, LOCAL_THETA)
    if local_scaling != RopeScaling():
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"config.json: rotary scaling {local_scaling.type!r} of {SLIDING} layers is not implemented; "
            "implemented is default",
            field="config.json",
        )
    return theta, scaling, local_theta


NAMES: Final = {**GEMMA2_NAMES, **HEAD_NORM_NAMES}

FAMILY: Final = Family(name="gemma3", architecture="Gemma3ForCausalLM", names=NAMES, read_config=read_config)
