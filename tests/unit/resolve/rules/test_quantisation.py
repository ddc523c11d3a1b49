"""Quantisation by the build."""

from typing import Any

from tests.unit.resolve.cases import for_engine, found, refused, silent, warned


def quantised(algo: str | None = None, **fields: Any) -> dict[str, Any]:
    return for_engine(quantConfig={"quantAlgo": algo} if algo else None, **fields)


def test_qnt_1_calibration_that_does_not_happen_is_told() -> None:
    calib = {"calibBatches": 16}

    assert "W4A16 needs no calibration" in warned("QNT-1", found(quantised("W4A16", calibConfig=calib))).message
    assert "nothing is quantised" in warned("QNT-1", found(quantised(calibConfig=calib))).message
    assert silent("QNT-1", found(quantised("FP8", calibConfig=calib)))


def test_qnt_2_a_scheme_for_the_cache_alone_is_not_nvfp4() -> None:
    alone = for_engine(quantConfig={"kvCacheQuantAlgo": "NVFP4"})

    assert refused("QNT-2", found(alone)).path == "spec.quantConfig.kvCacheQuantAlgo"
    assert silent("QNT-2", found(for_engine(quantConfig={"kvCacheQuantAlgo": "FP8"})))
    assert silent("QNT-2", found(for_engine(quantConfig={"kvCacheQuantAlgo": "NVFP4", "quantAlgo": "NVFP4"})))


def test_qnt_5_groups_of_a_scheme_without_groups_are_told() -> None:
    assert warned("QNT-5", found(for_engine(quantConfig={"quantAlgo": "FP8", "groupSize": 64}))).path == (
        "spec.quantConfig.groupSize"
    )
    assert silent("QNT-5", found(for_engine(quantConfig={"quantAlgo": "W4A16_AWQ", "groupSize": 64})))


def test_set_8_a_fast_build_of_another_scheme_is_told() -> None:
    assert warned("SET-8", found(quantised("W4A16_AWQ", fastBuild=True))).path == "spec.fastBuild"
