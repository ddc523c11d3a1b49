"""Equal keys are equal content: everything that a build depends on is in the key, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import COMMIT, HUB, VERSIONS, a_deployment_spec, an_engine_spec, smollm2_facts, some_defaults
from trtllm_operator.resolve.projection import Spec
from trtllm_operator.resolve.resolution import resolve


def key(spec: Spec, versions: dict[str, str] | None = None, **facts: Any) -> str:
    return resolve(spec, smollm2_facts(**facts), versions or VERSIONS, some_defaults()).engine_key


GOLDEN: dict[str, tuple[Spec, dict[str, Any], str]] = {
    "torch, on a volume": (a_deployment_spec(), {}, "66a686c027488266019f0c1866abb8ce476281de0b22be88eeb306a27730be17"),
    "tensorrt_rtx, on a volume": (
        an_engine_spec(),
        {},
        "5ef43bf8d3407d328ae0441cc90a749de53bb4af198b2ca6ce3af4469a6df89a",
    ),
    "torch, from the hub": (
        a_deployment_spec(**HUB),
        {"commit": COMMIT},
        "5450faaa185932e63148ea3533f32c58ccf7bdf6913bdcd53c5801066972a017",
    ),
    "torch, sizes left out": (
        a_deployment_spec(buildConfig=None),
        {},
        "3f78452acac5990b39ba86018329904e179263bec28ea0ef44b89c9960c4d661",
    ),
}
"""A key that changes here rebuilds every engine of every user."""


@pytest.mark.parametrize("name", GOLDEN)
def test_keys_do_not_change_between_versions_of_the_operator(name: str) -> None:
    spec, facts, expected = GOLDEN[name]

    assert key(spec, **facts) == expected


@pytest.mark.parametrize(
    "spec",
    [
        {"dtype": "float16"},
        {"buildConfig": {"maxBatchSize": 4}},
        {"buildConfig": {"maxInputLen": 512}},
        {"buildConfig": {"maxSeqLen": 4096}},
    ],
)
def test_what_the_content_depends_on_is_in_the_key(spec: dict[str, Any]) -> None:
    assert key(a_deployment_spec(**spec)) != key(a_deployment_spec())


def test_the_model_the_toolchain_and_the_target_are_in_the_key() -> None:
    base = an_engine_spec()

    assert key(base, digest="sha256:" + "0" * 64) != key(base)
    assert key(base, {**VERSIONS, "tensorrt_rtx": "tensorrt_rtx-1.8.0+engine-0.1.0"}) != key(base)
    assert key(an_engine_spec(target={"computeCapability": "8.6"})) != key(base)
    assert key(an_engine_spec(toolchain="torch", target=None)) != key(base)


def test_a_hub_model_is_its_commit_whatever_it_was_called() -> None:
    branch, pinned = a_deployment_spec(**HUB, revision="main"), a_deployment_spec(**HUB, revision=COMMIT)

    assert key(branch, commit=COMMIT) == key(pinned, commit=COMMIT)
    assert key(branch, commit=COMMIT) != key(branch, commit="0" * 40)


@pytest.mark.parametrize(
    "spec",
    [
        {"model": "/models/elsewhere"},
        {"modelVolume": {"persistentVolumeClaim": {"claimName": "other"}}},
        {"replicas": 7, "suspend": True},
        {"engine": {"storage": {"size": "9Gi"}, "retention": "1d", "deadlineSeconds": 60, "image": "other:1"}},
        {"serving": {"device": "cuda", "port": 9000, "modelName": "m"}},
        {"scheduling": {"nodeSelector": {"a": "b"}}, "podTemplate": {"labels": {"a": "b"}}},
        {"gpusPerNode": 8, "tensorParallelSize": 1},
    ],
)
def test_neither_paths_nor_how_it_is_served_are_in_the_key(spec: dict[str, Any]) -> None:
    assert key(a_deployment_spec(**spec)) == key(a_deployment_spec())


@given(
    batch=st.integers(1, 512),
    prompt=st.integers(1, 8192),
    sequence=st.integers(1, 8192),
    folder=st.from_regex(r"[a-z]{1,20}", fullmatch=True),
)
def test_a_key_is_the_same_wherever_the_model_lies(batch: int, prompt: int, sequence: int, folder: str) -> None:
    sizes = {"maxBatchSize": batch, "maxInputLen": min(prompt, sequence), "maxSeqLen": sequence}
    here, there = a_deployment_spec(buildConfig=sizes), a_deployment_spec(buildConfig=sizes, model=f"/models/{folder}")

    assert key(here) == key(here) == key(there)
