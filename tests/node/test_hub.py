"""A model of the hub, fetched once into the namespace's cache by a real pod; the hub is a double on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.doubles.hub import HubDouble
from tests.node.world import Namespace, condition, deployment
from tests.operator_process import OperatorProcess

REPO = "someone/tiny"
TOKEN = "hf_a-token-of-this-test"


@pytest.fixture
def hub(cluster: Cluster, checkpoints: Path) -> Iterator[HubDouble]:
    """The hub's double, where pods can reach it; the repository is gated."""
    with HubDouble(address=cluster.network.machine_address) as double:
        double.add(REPO, checkpoints / "tiny", token=TOKEN, gated=True)
        yield double


@pytest.fixture
def operator_config(operator_config: dict[str, object], hub: HubDouble) -> dict[str, object]:
    return operator_config | {"hubEndpoint": hub.endpoint, "cacheSize": "1Gi"}


def hub_deployment(name: str, **spec: Any) -> dict[str, Any]:
    made = deployment(name, model=REPO, **spec)
    del made["spec"]["modelVolume"]
    return made


def test_a_gated_model_is_forbidden_without_a_token_and_fetched_once_with_it(
    operator: OperatorProcess, namespace: Namespace, hub: HubDouble
) -> None:
    namespace.apply(hub_deployment("gated"))
    stalled = namespace.wait_stalled("llmdeployment", "gated", 60)
    assert condition(stalled, "Stalled")["reason"] == "ModelForbidden"
    assert "hubTokenSecretRef" in condition(stalled, "Stalled")["message"]

    namespace.kubectl("create", "secret", "generic", "hub", f"--from-literal=token={TOKEN}")
    namespace.apply(hub_deployment("gated", hubTokenSecretRef={"name": "hub", "key": "token"}))
    ready = namespace.wait(
        "llmdeployment", "gated", lambda d: condition(d, "Ready").get("status") == "True", "Ready", 120
    )
    assert ready["status"]["model"]["facts"]["commit"]
    assert len(hub.downloads("model.safetensors")) == 1
    assert namespace.complete("gated", "the engine")["usage"]["completion_tokens"] > 0
