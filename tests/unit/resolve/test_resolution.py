"""A resolution leaves nothing open, or says everything that stands against it."""

import dataclasses

import pytest

from tests.builders import (
    COMMIT,
    DIGEST,
    HUB,
    VERSIONS,
    a_deployment_spec,
    a_resolution,
    an_engine_spec,
    smollm2_facts,
    some_defaults,
)
from trtllm_engine.contract import BuildRequest, ModelSource, Toolchain
from trtllm_operator.api.conditions import Reason
from trtllm_operator.api.problems import Refused
from trtllm_operator.resolve.resolution import Resolution, resolve
from trtllm_operator.resolve.storage import engine_storage


def test_both_kinds_of_spec_resolve_to_the_same_engine() -> None:
    engine = an_engine_spec(dtype="float32", toolchain="torch", target=None)

    assert a_resolution(engine).engine_key == a_resolution(a_deployment_spec()).engine_key


def test_a_hub_model_is_built_from_its_commit() -> None:
    resolution = a_resolution(a_deployment_spec(**HUB, revision="main"), commit=COMMIT)

    assert resolution.source == ModelSource(repo=HUB["model"], revision=COMMIT)


def test_gpus_follow_from_the_mapping_and_the_device() -> None:
    assert a_resolution().gpus_per_pod == 1
    assert a_resolution(a_deployment_spec(serving={"device": "cpu"})).gpus_per_pod == 0


def test_a_resolution_survives_json() -> None:
    resolution = a_resolution(a_deployment_spec(buildConfig=None))

    assert resolution.adjustments
    assert Resolution.from_json(resolution.to_json()) == resolution


def test_the_build_pods_are_told_everything() -> None:
    resolution = a_resolution()
    request = resolution.build_request()

    assert BuildRequest.from_json(request.to_json()) == request
    assert request.model == ModelSource(path="/models/SmolLM2-135M-Instruct")
    assert (request.model_digest, request.toolchain) == (DIGEST, Toolchain.TORCH)
    assert request.output == f"engines/{resolution.engine_key}"


def test_all_problems_come_together() -> None:
    spec = a_deployment_spec(tensorParallelSize=2, trustRemoteCode=True)

    with pytest.raises(Refused) as caught:
        resolve(spec, smollm2_facts(), {}, some_defaults())

    assert [problem.path for problem in caught.value.problems] == [
        "spec.trustRemoteCode",
        "spec.tensorParallelSize",
        "spec.engine.toolchain",
    ]
    assert caught.value.reason is Reason.INVALID_SPEC
    assert "9 attention heads" in caught.value.sentence()


def test_an_image_without_the_toolchain_is_told_with_what_it_has() -> None:
    spec = an_engine_spec(toolchain="tensorrt", target={"computeCapability": "9.0"})

    with pytest.raises(Refused, match="cannot run toolchain tensorrt; it has tensorrt_rtx, torch"):
        resolve(spec, smollm2_facts(), VERSIONS, some_defaults())


def test_a_pinned_version_is_kept_or_refused() -> None:
    pinned = an_engine_spec(toolchainVersion=VERSIONS["tensorrt_rtx"])
    assert a_resolution(pinned).toolchain_version == VERSIONS["tensorrt_rtx"]

    with pytest.raises(Refused, match=r"spec\.toolchainVersion: .* 1\.6 is pinned"):
        a_resolution(an_engine_spec(toolchainVersion="1.6"))


def test_a_claim_has_room_for_the_engine_and_a_rebuild() -> None:
    small = a_resolution()
    large = dataclasses.replace(
        small, facts=smollm2_facts(parameters=8_030_261_248), args=dataclasses.replace(small.args, dtype="bfloat16")
    )

    assert (engine_storage(small), engine_storage(large)) == ("3Gi", "31Gi")
