"""What is known about a model, as status carries it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from trtllm_engine import contract

from .schema import StatusModel


class QuantFactsShape(StatusModel):
    """The fields of `contract.QuantFacts`."""

    algo: str
    """Scheme, as quantConfig.quantAlgo spells it."""
    group_size: int | None = None
    """Columns that share a scale; absent: all of a row."""


class ModelFactsShape(StatusModel):
    """The fields of `contract.ModelFacts` as the API shows them."""

    format: str
    """hf, trtllm_checkpoint or trtllm_engine."""
    architecture: str
    """Class name that the checkpoint's configuration gives."""
    family: str | None = None
    """The network definition that builds it; absent: none does."""
    dtype: str
    """Type of the stored weights."""
    quantization: str | None = None
    """Method that quantised the stored weights; absent: none did."""
    quant: Annotated[QuantFactsShape | None, WithJsonSchema(QuantFactsShape.model_json_schema())] = None
    """What that method made, if engines can keep it."""
    quant_unread: str | None = None
    """Why they cannot."""
    hidden_size: int
    """Width of the residual stream."""
    num_layers: int
    """Decoder layers."""
    num_attention_heads: int
    """Query heads per layer."""
    num_key_value_heads: int
    """Key and value heads per layer."""
    head_dim: int
    """Width of one head."""
    intermediate_size: int
    """Width of the feed-forward layer."""
    vocab_size: int
    """Tokens of the vocabulary."""
    max_position_embeddings: int
    """Longest sequence that the model was made for, in tokens."""
    tied_embeddings: bool
    """Whether input and output embeddings are one tensor."""
    experts: int = 0
    """Experts of each layer that has any; 0: every layer is dense."""
    experts_per_token: int = 0
    """Experts that a token passes through."""
    expert_intermediate_size: int = 0
    """Width of an expert's feed-forward layer."""
    expert_parameters: int = 0
    """Number of the parameters that are inside experts."""
    sliding_window: int | None = None
    """Tokens that a windowed layer sees; absent: every layer sees all."""
    windowed_layers: int = 0
    """Layers that see only the window."""
    parameters: int
    """Number of parameters."""
    weight_bytes: int
    """Bytes of the stored weights."""
    commit: str | None = None
    """Resolved commit of a hub model."""
    digest: str
    """Digest over names, sizes, headers and small files of the checkpoint."""


def _facts(value: Any) -> contract.ModelFacts:
    if isinstance(value, contract.ModelFacts):
        return value
    shape = ModelFactsShape.model_validate(value)
    return contract.ModelFacts.from_dict(shape.model_dump(by_alias=True, exclude_none=True))


ModelFacts = Annotated[
    contract.ModelFacts,
    PlainValidator(_facts),
    PlainSerializer(contract.ModelFacts.to_dict),
    WithJsonSchema(ModelFactsShape.model_json_schema()),
]
"""The contract's own type in code, an object with named fields in the API."""


class ModelStatus(StatusModel):
    """What a fetch Job found out. It counts only for the source that it was asked about."""

    source: str
    """Hash of where the model is and which image looked at it; another hash: these facts are stale."""
    facts: ModelFacts
    """What the checkpoint says about itself."""
    versions: dict[str, str] = {}
    """Exact version of each toolchain that the image can run."""
