"""Builders of specs, facts and objects: a test names what matters to it, the rest is the small model's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from trtllm_engine.contract import ModelFacts, Toolchain
from trtllm_operator.api import names
from trtllm_operator.api.deployment import LLMDeployment, LLMDeploymentSpec
from trtllm_operator.api.engine import LLMEngine, LLMEngineSpec
from trtllm_operator.api.schema import ApiModel, parse_spec
from trtllm_operator.resolve.defaults import Defaults
from trtllm_operator.resolve.resolution import Resolution, resolve

Json = dict[str, Any]
Model = TypeVar("Model", bound=ApiModel)

NOW: Final = datetime(2026, 1, 2, 14, 3, tzinfo=UTC)
DIGEST: Final = "sha256:" + "5eed" * 16
COMMIT: Final = "6f6073b423013f6a7d4d9f39144961bfbfbc386b"
VERSIONS: Final = {"torch": "torch-2.13.0+engine-0.1.0", "tensorrt_rtx": "tensorrt_rtx-1.7.1.116+engine-0.1.0"}
"""What an engine image without a GPU reports."""

DEPLOYMENT_SPEC: Final[Json] = {
    "model": "/models/SmolLM2-135M-Instruct",
    "modelVolume": {"persistentVolumeClaim": {"claimName": "models"}},
    "dtype": "float32",
    "buildConfig": {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048},
    "engine": {"toolchain": "torch"},
}
ENGINE_SPEC: Final[Json] = {
    "model": "/models/SmolLM2-135M-Instruct",
    "modelVolume": {"persistentVolumeClaim": {"claimName": "models"}},
    "dtype": "bfloat16",
    "buildConfig": {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048},
    "toolchain": "tensorrt_rtx",
    "target": {"computeCapability": "8.9"},
}
HUB: Final[Json] = {"model": "HuggingFaceTB/SmolLM2-135M-Instruct", "modelVolume": None}
"""The same model, from the hub: `a_deployment_spec(**HUB)`."""


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Json:
    """`base` with `changes` merged in, object by object; None removes a field (JSON merge patch)."""
    result = copy.deepcopy(dict(base))
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(result.get(name), Mapping):
            result[name] = merged(result[name], value)
        else:
            result[name] = copy.deepcopy(value)
    return result


def a_deployment_object(name: str = "smollm2", *, spec: Json | None = None, status: Json | None = None) -> Json:
    """An LLMDeployment as the API server stores it; `spec` is merged into the small model's."""
    return _object(LLMDeployment.KIND, name, merged(DEPLOYMENT_SPEC, spec or {}), status)


def an_engine_object(name: str = "smollm2-rtx-ada", *, spec: Json | None = None, status: Json | None = None) -> Json:
    """An LLMEngine as the API server stores it; `spec` is merged into the small model's."""
    return _object(LLMEngine.KIND, name, merged(ENGINE_SPEC, spec or {}), status)


def a_deployment(name: str = "smollm2", *, status: Json | None = None, **spec: Any) -> LLMDeployment:
    """Keyword arguments are fields of the spec, as in YAML."""
    return LLMDeployment.of(a_deployment_object(name, spec=spec, status=status))


def an_engine(name: str = "smollm2-rtx-ada", *, status: Json | None = None, **spec: Any) -> LLMEngine:
    """Keyword arguments are fields of the spec, as in YAML."""
    return LLMEngine.of(an_engine_object(name, spec=spec, status=status))


def a_deployment_spec(**changes: Any) -> LLMDeploymentSpec:
    return _parsed(LLMDeploymentSpec, merged(DEPLOYMENT_SPEC, changes))


def an_engine_spec(**changes: Any) -> LLMEngineSpec:
    return _parsed(LLMEngineSpec, merged(ENGINE_SPEC, changes))


def smollm2_facts(**changes: Any) -> ModelFacts:
    """What inspection says about SmolLM2-135M-Instruct."""
    facts: Json = {
        "format": "hf",
        "architecture": "LlamaForCausalLM",
        "family": "llama",
        "dtype": "bfloat16",
        "hidden_size": 576,
        "num_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tied_embeddings": True,
        "parameters": 134_515_008,
        "weight_bytes": 269_030_016,
        "digest": DIGEST,
    }
    return ModelFacts(**{**facts, **changes})


def some_defaults(**changes: Any) -> Defaults:
    """The operator's configuration as installed, with toolchain torch."""
    return Defaults(toolchain=Toolchain.TORCH).model_copy(update=changes)


def a_resolution(spec: LLMDeploymentSpec | LLMEngineSpec | None = None, **facts: Any) -> Resolution:
    """Of the small model, or of `spec`; keyword arguments change the facts."""
    return resolve(spec or a_deployment_spec(), smollm2_facts(**facts), VERSIONS, some_defaults())


def _object(kind: str, name: str, spec: Json, status: Json | None) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "generation": 1,
            "resourceVersion": "100",
            "creationTimestamp": "2026-01-02T14:00:00Z",
        },
        "spec": spec,
        **({"status": status} if status is not None else {}),
    }


def _parsed(model: type[Model], data: Json) -> Model:
    spec, problems = parse_spec(model, data)
    assert spec is not None, problems
    return spec
