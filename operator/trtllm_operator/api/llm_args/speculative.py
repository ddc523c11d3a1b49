"""LlmArgs `speculative_config`: one of four ways to guess tokens ahead, told apart by `decodingType`.

The types have no base in common but their two shared fields; the schema of the API server cannot say "one of",
so there it is one section with the fields of all types, and a rule for each field that some types lack.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..schema import ApiModel
from .bounds import Choices, Count, Positive, Text
from .facts import Ref


class DecodingBaseConfig(ApiModel):
    """What every type has."""

    max_draft_len: Annotated[Count | None, Ref(None, "both")] = None
    """Tokens that are guessed ahead."""
    speculative_model: Annotated[Text | None, Ref(None, "build")] = None
    """Model or heads that guess: a repository of the hub, or a path below /models."""


class MedusaDecodingConfig(DecodingBaseConfig):
    """Several heads on the model guess one token each."""

    decoding_type: Literal["Medusa"]
    """How tokens are guessed."""
    medusa_choices: Annotated[Choices | None, Ref(None, "runtime")] = None
    """Fixed tree of guesses."""
    num_medusa_heads: Annotated[Positive | None, Ref(None, "build")] = None
    """Number of heads."""


class EagleDecodingConfig(DecodingBaseConfig):
    """A small model guesses from the hidden states of the large one."""

    decoding_type: Literal["Eagle"]
    """How tokens are guessed."""
    eagle_choices: Annotated[Choices | None, Ref(None, "runtime")] = None
    """Fixed tree of guesses; not with useDynamicTree."""
    greedy_sampling: Annotated[bool | None, Ref(True, "runtime")] = None
    """Accept guesses greedily; else typically."""
    posterior_threshold: Annotated[float | None, Field(ge=0, lt=1), Ref(None, "runtime")] = None
    """Threshold of typical acceptance, from 0 to below 1."""
    use_dynamic_tree: Annotated[bool | None, Ref(False, "runtime")] = None
    """Grow the tree from the guesses (EAGLE-2)."""
    dynamic_tree_max_topK: Annotated[Positive | None, Ref(None, "runtime")] = None
    """Branches of a node of the dynamic tree."""
    num_eagle_layers: Annotated[Positive | None, Ref(None, "build")] = None
    """Depth of the draft."""
    max_non_leaves_per_layer: Annotated[Positive | None, Ref(None, "build")] = None
    """Width of the draft."""
    pytorch_eagle_weights_path: Annotated[Text | None, Ref(None, "runtime")] = None
    """EAGLE-3 weights; needed with backend pytorch."""


class MTPDecodingConfig(DecodingBaseConfig):
    """Layers of the model itself guess the next tokens."""

    decoding_type: Literal["MTP"]
    """How tokens are guessed."""
    num_nextn_predict_layers: Annotated[Positive | None, Ref(1, "runtime")] = None
    """Layers that guess."""


class LookaheadDecodingConfig(DecodingBaseConfig):
    """N-grams that were seen before are verified."""

    decoding_type: Literal["Lookahead"]
    """How tokens are guessed."""
    max_window_size: Annotated[Positive | None, Ref(4, "both")] = None
    """N-grams in the lookahead branch."""
    max_ngram_size: Annotated[Positive | None, Ref(3, "both")] = None
    """Tokens of an n-gram."""
    max_verification_set_size: Annotated[Positive | None, Ref(4, "both")] = None
    """N-grams in the verification branch."""


SpeculativeConfig = Annotated[
    MedusaDecodingConfig | EagleDecodingConfig | MTPDecodingConfig | LookaheadDecodingConfig,
    Field(discriminator="decoding_type"),
]
