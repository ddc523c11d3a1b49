"""What dies with its owner has one; what outlives whoever asked for it has none."""

from typing import Any

import pytest

from tests.builders import (
    COMMIT,
    HUB,
    VERSIONS,
    a_deployment,
    a_deployment_spec,
    a_resolution,
    an_engine,
    some_defaults,
)
from trtllm_operator.api import names
from trtllm_operator.api.engine import LLMEngineSpec
from trtllm_operator.api.schema import parse_spec
from trtllm_operator.desired.build_job import build_job
from trtllm_operator.desired.cache_claim import cache_claim
from trtllm_operator.desired.controller_revision import controller_revision, freeze
from trtllm_operator.desired.engine_claim import engine_claim
from trtllm_operator.desired.fetch_job import fetch_job
from trtllm_operator.desired.llm_engine import llm_engine
from trtllm_operator.desired.metadata import Manifest
from trtllm_operator.desired.pdb import disruption_budget
from trtllm_operator.desired.service import headless, leader, leader_selector
from trtllm_operator.desired.statefulset import statefulset
from trtllm_operator.resolve.resolution import resolve

DEPLOYMENT, ENGINE, RESOLUTION, DEFAULTS = a_deployment(), an_engine(), a_resolution(), some_defaults()
FROZEN = freeze(DEPLOYMENT, RESOLUTION, DEFAULTS)


@pytest.mark.parametrize(
    "child",
    [
        fetch_job(DEPLOYMENT, DEFAULTS),
        statefulset(DEPLOYMENT, FROZEN, 0),
        controller_revision(DEPLOYMENT, FROZEN),
        headless(DEPLOYMENT),
        disruption_budget(DEPLOYMENT),
        leader(DEPLOYMENT, 8000),
    ],
    ids=lambda child: child["kind"],
)
def test_children_go_with_their_deployment(child: Manifest) -> None:
    (owner,) = child["metadata"]["ownerReferences"]

    assert (owner["kind"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
        "LLMDeployment",
        "uid-of-smollm2",
        True,
        True,
    )
    assert child["metadata"]["labels"][names.MANAGED_BY] == names.MANAGER


def test_a_build_goes_with_its_engine() -> None:
    (owner,) = build_job(ENGINE, RESOLUTION, DEFAULTS)["metadata"]["ownerReferences"]

    assert (owner["kind"], owner["name"]) == ("LLMEngine", "smollm2-rtx-ada")


@pytest.mark.parametrize(
    "survivor",
    [
        engine_claim(ENGINE, RESOLUTION, DEFAULTS),
        cache_claim("default", DEFAULTS),
        llm_engine(DEPLOYMENT, RESOLUTION, DEFAULTS),
    ],
    ids=lambda survivor: survivor["kind"],
)
def test_what_is_shared_has_no_owner(survivor: Manifest) -> None:
    assert "ownerReferences" not in survivor["metadata"]
    assert survivor["metadata"]["labels"][names.MANAGED_BY] == names.MANAGER


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"buildConfig": None, "dtype": None},
        {**HUB, "revision": "main"},
        {"serving": {"device": "cpu"}, "dtype": None},
        {"engine": {"target": {"computeCapability": "8.9"}}},
        {"tensorParallelSize": 3, "pipelineParallelSize": 2},
        {"autoParallel": True, "autoParallelWorldSize": 3},
        {"quantConfig": {"quantAlgo": "W8A16"}},
        {"quantConfig": {"quantAlgo": "W4A16"}},
        {"quantConfig": {"quantAlgo": "W4A16", "groupSize": 32}, "loadFormat": "dummy"},
    ],
)
def test_an_engine_that_a_deployment_asks_for_resolves_to_the_same_key(spec: dict[str, Any]) -> None:
    facts = {"commit": COMMIT} if "model" in spec else {}
    resolution = a_resolution(a_deployment_spec(**spec), **facts)
    manifest = llm_engine(a_deployment(**spec), resolution, DEFAULTS)
    engine, problems = parse_spec(LLMEngineSpec, manifest["spec"])

    assert engine is not None, problems
    again = resolve(engine, resolution.facts, VERSIONS, some_defaults(toolchain="tensorrt", engine_image="newer:2"))
    assert again.engine_key == resolution.engine_key
    assert again.adjustments == ()


def test_experts_that_a_deployment_spreads_are_spread_so_by_its_engine() -> None:
    spec = a_deployment_spec(tensorParallelSize=4, moeExpertParallelSize=2)
    experts = {"experts": 8, "experts_per_token": 2, "expert_intermediate_size": 1536, "expert_parameters": 10**8}
    resolution = a_resolution(spec, num_attention_heads=8, num_key_value_heads=4, **experts)
    written = llm_engine(a_deployment(tensorParallelSize=4, moeExpertParallelSize=2), resolution, DEFAULTS)["spec"]
    engine, _ = parse_spec(LLMEngineSpec, written)

    assert engine is not None
    assert resolution.mapping.expert_sizes == (2, 2)
    assert resolve(engine, resolution.facts, VERSIONS, some_defaults()).engine_key == resolution.engine_key


def test_a_claim_is_as_large_as_it_must_be_or_as_the_user_says() -> None:
    assert engine_claim(ENGINE, RESOLUTION, DEFAULTS)["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "3Gi"}},
    }
    written = an_engine(storage={"size": "2Gi", "storageClassName": "fast", "accessModes": ["ReadWriteMany"]})
    assert engine_claim(written, RESOLUTION, DEFAULTS)["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "2Gi"}},
    }


def test_clients_reach_one_pod_per_replica() -> None:
    service = leader(DEPLOYMENT, 8000)["spec"]

    assert service["selector"] == {
        names.DEPLOYMENT_LABEL: "smollm2",
        names.ROLE_LABEL: "server",
        "apps.kubernetes.io/pod-index": "0",
    }
    assert leader_selector(DEPLOYMENT) == ",".join(f"{k}={v}" for k, v in sorted(service["selector"].items()))
    assert headless(DEPLOYMENT)["spec"]["publishNotReadyAddresses"] is True
