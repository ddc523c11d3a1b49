"""Quantisation by the build."""

from typing import Any

import pytest

from tests.builders import merged, smollm2_facts
from tests.unit.resolve.cases import adjusted, for_engine, found, llama_8b, refused, silent, warned
from trtllm_engine.contract import Mapping, ModelFacts, QuantAlgo, QuantArgs
from trtllm_operator.api.conditions import Reason


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


def test_qnt_5_own_schemes_with_a_scale_for_each_row_have_no_groups_either() -> None:
    eight = found({"quantConfig": {"quantAlgo": "W8A16", "groupSize": 64}}, smollm2_facts())
    assert "W8A16 has no groups" in warned("QNT-5", eight).message
    assert eight.chosen is not None and eight.chosen.args.quant == QuantArgs(algo=QuantAlgo.W8A16)
    assert "no quantAlgo is asked for" in warned("QNT-5", found({"quantConfig": {"groupSize": 64}})).message
    assert silent("QNT-5", found({"quantConfig": {"quantAlgo": "W4A16", "groupSize": 64}}))
    assert silent("QNT-5", found({"quantConfig": {"quantAlgo": "W4A16_AWQ", "groupSize": 64}})), "refused by CAP-5"


def test_qnt_6_groups_have_sizes_that_exist() -> None:
    problem = refused("QNT-6", found({"quantConfig": {"quantAlgo": "W4A16", "groupSize": 48}}))

    assert (problem.path, problem.code) == ("spec.quantConfig.groupSize", Reason.INVALID_SPEC)
    assert str(problem.hint).startswith("allowed are 128, 64, 32")
    assert silent("QNT-6", found({"quantConfig": {"quantAlgo": "W4A16", "groupSize": 128}}))
    assert silent("QNT-6", found({"quantConfig": {"quantAlgo": "W8A16", "groupSize": 48}}))


@pytest.mark.parametrize(
    ("facts", "spec", "size"),
    [
        (llama_8b(), {}, 128),
        (llama_8b(), {"tensorParallelSize": 8}, 128),
        (llama_8b(intermediate_size=13824), {"tensorParallelSize": 8}, 64),
        (smollm2_facts(), {}, 64),
        (smollm2_facts(), {"quantConfig": {"groupSize": 32}}, 32),
    ],
)
def test_qnt_7_a_group_size_that_is_not_written_is_the_largest_that_divides(
    facts: ModelFacts, spec: dict[str, Any], size: int
) -> None:
    result = found(merged({"quantConfig": {"quantAlgo": "W4A16"}}, spec), facts)

    assert result.problems == ()
    assert result.chosen is not None
    assert result.chosen.args.quant == QuantArgs(algo=QuantAlgo.W4A16, group_size=size)
    # 128 is what the reference takes, and what is written is not chosen.
    told = {} if size == 128 or "quantConfig" in spec else {"quantConfig.groupSize": (None, str(size))}
    assert adjusted("QNT-7", result) == told


def test_the_planner_keeps_groups_whole() -> None:
    """With 7168 columns of the feed-forward layer 8 ranks have 896 each, and 16 would have 448."""
    spec = {"autoParallel": True, "autoParallelWorldSize": 16, "gpusPerNode": 16, "quantConfig": {"quantAlgo": "W4A16"}}
    facts = llama_8b(intermediate_size=7168)

    def layout(size: int | None) -> Mapping:
        result = found(merged(spec, {"quantConfig": {"groupSize": size}}), facts)
        assert result.chosen is not None, result.problems
        return result.chosen.mapping

    assert (layout(128), layout(None)) == (Mapping(tp=8, pp=2), Mapping(tp=16))


def test_set_8_a_fast_build_of_another_scheme_is_told() -> None:
    assert warned("SET-8", found(quantised("W4A16_AWQ", fastBuild=True))).path == "spec.fastBuild"
