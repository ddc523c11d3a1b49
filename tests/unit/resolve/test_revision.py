"""A revision is what serving pods come from; what they do not see replaces none of them."""

import json
from typing import Any

import pytest

from tests.builders import a_deployment, a_deployment_spec, a_resolution, some_defaults
from trtllm_engine.contract import ContractError
from trtllm_operator.desired.controller_revision import freeze
from trtllm_operator.resolve.revision import Frozen, revision_hash

BASE = revision_hash(a_deployment_spec())


def test_a_revision_hash_does_not_change_between_versions_of_the_operator() -> None:
    """A hash that changes here restarts every replica of every user."""
    assert BASE == "a6b45794b0"


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 0},
        {"suspend": True},
        {"hubTokenSecretRef": {"name": "hf", "key": "token"}},
        {"engine": {"retention": "Keep", "deadlineSeconds": 600}},
        {"engine": {"storage": {"size": "9Gi"}, "resources": {"limits": {"memory": "96Gi"}}}},
        {"serving": {}, "scheduling": {"tolerations": []}},
    ],
)
def test_what_no_serving_pod_sees_is_no_new_revision(spec: dict[str, Any]) -> None:
    assert revision_hash(a_deployment_spec(**spec)) == BASE


@pytest.mark.parametrize(
    "spec",
    [
        {"model": "/models/other"},
        {"dtype": "float16"},
        {"buildConfig": {"maxBatchSize": 4}},
        {"engine": {"image": "other:1"}},
        {"serving": {"port": 9000}},
        {"serving": {"drainSeconds": 0}},
        {"scheduling": {"nodeSelector": {"zone": "a"}}},
        {"podTemplate": {"annotations": {"a": "b"}}},
    ],
)
def test_what_a_serving_pod_sees_is_a_new_revision(spec: dict[str, Any]) -> None:
    assert revision_hash(a_deployment_spec(**spec)) != BASE


def test_a_frozen_revision_survives_the_api_server() -> None:
    frozen = freeze(a_deployment(), a_resolution(), some_defaults())

    assert Frozen.from_data(json.loads(json.dumps(frozen.to_data()))) == frozen


@pytest.mark.parametrize("data", [{}, {"revision": "a"}, None])
def test_what_is_no_frozen_revision_is_told(data: Any) -> None:
    with pytest.raises(ContractError):
        Frozen.from_data(data)
