"""TensorRT-LLM's plugins and the layout of its cache."""

from typing import Any

import pytest

from tests.unit.resolve.cases import for_engine, found, llama_8b, mixtral, refused, silent, warned


def plugins(spec: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return for_engine(buildConfig={"pluginConfig": options}, **(spec or {}))


@pytest.mark.parametrize(
    ("kind", "paged", "fine"),
    [("PAGED", True, True), ("PAGED", False, False), ("CONTINUOUS", True, False), ("CONTINUOUS", False, True)],
)
def test_kvt_1_both_names_of_the_layout_say_the_same(kind: str, paged: bool, fine: bool) -> None:
    result = found(for_engine(buildConfig={"kvCacheType": kind, "pluginConfig": {"pagedKvCache": paged}}))

    assert silent("KVT-1", result) is fine
    if not fine:
        assert "pagedKvCache" in refused("KVT-1", result).message


def test_kvt_2_an_engine_without_cache_is_told() -> None:
    assert (
        warned("KVT-2", found(for_engine(buildConfig={"kvCacheType": "DISABLED"}))).path
        == "spec.buildConfig.kvCacheType"
    )
    assert silent("KVT-2", found(for_engine(buildConfig={"kvCacheType": "PAGED"})))


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (plugins(reduceFusion=True), "reduceFusion"),
        (plugins(userBuffer=True), "userBuffer"),
        (plugins(normQuantFusion=True), "normQuantFusion"),
    ],
)
def test_bld_4_a_fusion_without_its_precondition_is_told(spec: dict[str, Any], name: str) -> None:
    assert warned("BLD-4", found(spec)).path == f"spec.buildConfig.pluginConfig.{name}"


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (plugins({"tensorParallelSize": 1}, reduceFusion=True), "reduceFusion"),
        (plugins(userBuffer=True, reduceFusion=False), "userBuffer"),
        (plugins({"quantConfig": {"quantAlgo": "FP8"}}, normQuantFusion=True), "normQuantFusion"),
        (plugins({"tensorParallelSize": 2}, normQuantFusion=True, reduceFusion=True), "normQuantFusion"),
    ],
)
def test_bld_4_a_fusion_that_another_value_rules_out_is_refused(spec: dict[str, Any], name: str) -> None:
    assert refused("BLD-4", found(spec)).path == f"spec.buildConfig.pluginConfig.{name}"


def test_bld_4_a_fusion_that_is_possible_needs_no_word() -> None:
    both = plugins({"tensorParallelSize": 2}, reduceFusion=True, userBuffer=True)

    assert silent("BLD-4", found(both, llama_8b()))
    assert warned("BLD-4", found(both, mixtral())).path == "spec.buildConfig.pluginConfig.reduceFusion"
    assert silent("BLD-4", found(plugins({"quantConfig": {"quantAlgo": "NVFP4"}}, normQuantFusion=True)))


def test_bld_8_a_fused_swiglu_needs_the_fused_mlp_and_fp8() -> None:
    fp8 = {"quantConfig": {"quantAlgo": "FP8"}}

    assert "needs an FP8 model" in refused("BLD-8", found(plugins(gemmSwigluPlugin="fp8"))).message
    without = plugins(fp8, lowLatencyGemmSwigluPlugin="fp8", useFusedMlp=False)
    assert "useFusedMlp" in refused("BLD-8", found(without)).message
    assert silent("BLD-8", found(plugins(fp8, gemmSwigluPlugin="fp8")))
    assert silent("BLD-8", found(plugins(gemmSwigluPlugin="disable")))


def test_bld_11_reduce_scatter_between_stages_is_for_mixtral() -> None:
    spec = plugins({"pipelineParallelSize": 2}, ppReduceScatter=True)

    assert refused("BLD-11", found(spec, llama_8b())).path == "spec.buildConfig.pluginConfig.ppReduceScatter"
    assert silent("BLD-11", found(spec, mixtral()))
