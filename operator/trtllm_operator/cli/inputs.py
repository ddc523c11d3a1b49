"""What else a command may be told: the model, the nodes, the operator's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trtllm_engine.contract import ContractError, ModelFacts

from ..api.model_facts import ModelStatus
from ..api.nodes import NodeFacts
from ..resolve.defaults import Defaults, DefaultsError
from .documents import read_documents
from .failure import BadInput
from .model_config import read_model_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What is known about a model."""

    facts: ModelFacts
    versions: Mapping[str, str] = field(default_factory=dict)
    """Exact version of each toolchain of the image that looked at it; empty: no image has."""

    @property
    def exact(self) -> bool:
        """Whether the engine's key can be computed: from the checkpoint's digest and the toolchain's version."""
        return bool(self.versions)


def read_defaults(path: str | None) -> Defaults:
    """The operator's configuration as the chart writes it, or as installed without changes. Raises `BadInput`."""
    if path is None:
        return Defaults()
    documents = read_documents(path)
    data = documents[0].data if documents else None
    if isinstance(data, dict) and data.get("kind") == "ConfigMap":
        raise BadInput(f"{path}: is a ConfigMap; give the file in it: kubectl get configmap ... -o jsonpath={{.data}}")
    if len(documents) > 1 or not isinstance(data, dict | None):
        raise BadInput(f"{path}: must be one mapping, the operator's configuration")
    try:
        return Defaults.load(data)
    except DefaultsError as error:
        raise BadInput("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from error


def read_knowledge(model_config: str | None, facts: str | None) -> Knowledge | None:
    """From `--facts` (exact) or `--model-config`; None if neither was given. Raises `BadInput`."""
    if facts is not None:
        return read_facts(facts)
    return None if model_config is None else Knowledge(facts=read_model_config(Path(model_config)))


def read_facts(path: str) -> Knowledge:
    """An LLMDeployment or LLMEngine with `status.model`, that object itself, or bare facts. Raises `BadInput`."""
    documents = read_documents(path)
    if len(documents) != 1 or not isinstance(documents[0].data, dict):
        raise BadInput(f"{path}: must be one object: an LLMDeployment with its status, or its status.model")
    data = documents[0].data
    model = data["status"].get("model") if isinstance(data.get("status"), dict) else data
    known = knowledge_of(model)
    if known is None:
        raise BadInput(
            f"{path}: holds no facts of a model; write them with: kubectl get llmd NAME -o json > facts.json"
        )
    return known


def knowledge_of(model: Any) -> Knowledge | None:
    """From `status.model` or from bare facts; None if it is neither."""
    try:
        if isinstance(model, dict) and "facts" in model:
            status = ModelStatus.model_validate(model)
            return Knowledge(facts=status.facts, versions=status.versions)
        return Knowledge(facts=ModelFacts.from_dict(model))
    except (ContractError, ValidationError):
        return None


def read_nodes(path: str | None, resource: str) -> tuple[NodeFacts, ...] | None:
    """The nodes of `kubectl get nodes -o json` or `-o yaml`; None if no file was given. Raises `BadInput`."""
    if path is None:
        return None
    items = [item for document in read_documents(path) for item in document.items()]
    nodes = [item.data for item in items if isinstance(item.data, dict) and item.data.get("kind") == "Node"]
    if not nodes:
        raise BadInput(f"{path}: holds no Node; write it with: kubectl get nodes -o json > nodes.json")
    return tuple(NodeFacts.of(node, resource) for node in nodes)
