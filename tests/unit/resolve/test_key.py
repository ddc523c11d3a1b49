"""Equal keys are equal content: everything that a build depends on is in the key, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import COMMIT, HUB, VERSIONS, a_deployment_spec, an_engine_spec, smollm2_facts, some_defaults
from tests.unit.resolve.cases import gptq
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
    "torch, 8 bits": (
        a_deployment_spec(quantConfig={"quantAlgo": "W8A16"}),
        {},
        "0e5473094f712295a0ed470f3ab93f6be5a06d1cbb0d9b760e601e953983a333",
    ),
    "torch, 4 bits in groups of 64, chosen": (
        a_deployment_spec(quantConfig={"quantAlgo": "W4A16"}),
        {},
        "8fe5c8779ed51f9c78c0a9d3e0fadbcadca4bf63103ba0ff663fa941c7a1790e",
    ),
    "tensorrt_rtx, 4 bits in groups of 32": (
        an_engine_spec(quantConfig={"quantAlgo": "W4A16", "groupSize": 32}),
        {},
        "d7e15e0357fb28f1fc377e468d6e58fb81ae929cf23be37fdf0cf74332e71928",
    ),
    "torch, random weights": (
        a_deployment_spec(loadFormat="dummy"),
        {},
        "6a6c291e377e3aaf0e4a7953e3b03de9640160964150265a6af3b3664a4dd7c7",
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
        {"quantConfig": {"quantAlgo": "W8A16"}},
        {"quantConfig": {"quantAlgo": "W4A16"}},
        {"loadFormat": "dummy"},
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


def test_a_group_size_is_in_the_key_whoever_chose_it_and_only_where_there_are_groups() -> None:
    chosen, same, other = (
        key(a_deployment_spec(quantConfig={"quantAlgo": "W4A16", "groupSize": size})) for size in (None, 64, 32)
    )
    assert chosen == same != other
    rows = [a_deployment_spec(quantConfig={"quantAlgo": "W8A16", "groupSize": size}) for size in (None, 64)]
    assert key(rows[0]) == key(rows[1])


def test_how_a_checkpoint_is_quantised_is_in_its_digest_alone() -> None:
    stored = gptq(64)
    assert key(a_deployment_spec(), **stored) == key(a_deployment_spec())
    assert key(a_deployment_spec(quantConfig={"quantAlgo": "W4A16"}), **stored) == key(a_deployment_spec(), **stored)


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
        {"loadFormat": "auto"},
        {"quantConfig": {"quantAlgo": "NO_QUANT"}},
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
