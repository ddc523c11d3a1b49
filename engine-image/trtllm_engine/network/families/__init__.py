"""The model families that the decoder covers, found by the architecture that a config.json names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.families import gemma2, gemma3, llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe
from trtllm_engine.network.families.family import Family, Place

__all__ = ["ARCHITECTURES", "FAMILIES", "Family", "Place", "architecture", "family_of", "read_config"]

FAMILIES: Final[tuple[Family, ...]] = (
    llama.FAMILY,
    mistral.FAMILY,
    mixtral.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    qwen3_moe.FAMILY,
    gemma2.FAMILY,
    gemma3.FAMILY,
    phi3.FAMILY,
)

ARCHITECTURES: Final[Mapping[str, Family]] = {family.architecture: family for family in FAMILIES}


def read_config(raw: Mapping[str, object]) -> DecoderConfig:
    """Understand the config.json of a Hugging Face checkpoint.

    Raises `Failure`: UNSUPPORTED for an architecture or a feature that no family covers, CORRUPT_INPUT for a value
    that is missing or makes no sense.
    """
    return family_of(architecture(raw)).read_config(raw)


def architecture(raw: Mapping[str, object]) -> str:
    """What config.json says the model is. Raises CORRUPT_INPUT if it does not say."""
    names = raw.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise Failure(
            ExitCode.CORRUPT_INPUT, f"config.json: architectures must list one name; got {names!r}", field="config.json"
        )
    return names[0]


def family_of(architecture: str) -> Family:
    """Raises UNSUPPORTED, listing what is known."""
    family = ARCHITECTURES.get(architecture)
    if family is None:
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"config.json: architecture {architecture!r} has no network definition; "
            f"known are {', '.join(sorted(ARCHITECTURES))}",
            field="model",
        )
    return family
