"""How a model is spread over ranks, and ranks over nodes."""

from typing import Any

import pytest

from tests.builders import an_engine_spec, smollm2_facts, some_defaults
from tests.unit.resolve.cases import (
    a_node,
    by,
    for_engine,
    found,
    gptq,
    llama_8b,
    mixtral,
    others,
    refused,
    silent,
    warned,
)
from trtllm_operator.api.conditions import Reason
from trtllm_operator.resolve.examination import Examination, examine
from trtllm_operator.resolve.rules.case import Case


@pytest.mark.parametrize(
    "field", ["tensorParallelSize", "pipelineParallelSize", "contextParallelSize", "moeExpertParallelSize"]
)
def test_par_2_the_planner_chooses_alone(field: str) -> None:
    """MAP-4: context parallelism is not forgotten."""
    assert refused("PAR-2", found(for_engine(autoParallel=True, **{field: 2}))).path == f"spec.{field}"
    assert silent("PAR-2", found(for_engine(autoParallel=True, **{field: 1})))
    assert silent("PAR-2", found(for_engine(**{field: 2})))


def test_par_6_ranks_divide_over_nodes() -> None:
    """Q3: nine ranks on nodes of eight are not rounded down to four."""
    problem = refused("PAR-6", found({"tensorParallelSize": 9, "gpusPerNode": 8}))

    assert problem.path == "spec.tensorParallelSize"
    assert str(problem).endswith(
        "9 ranks do not divide evenly over nodes of 8 GPUs; the nearest numbers of ranks that do are 8, 10, 12"
    )
    assert silent("PAR-6", found({"tensorParallelSize": 12, "gpusPerNode": 8}))
    planned = found({"autoParallel": True, "autoParallelWorldSize": 9, "gpusPerNode": 8})
    assert refused("PAR-6", planned).path == "spec.autoParallelWorldSize"


def test_cap_8_a_mapping_beyond_every_cluster_is_a_slip() -> None:
    problem = refused("CAP-8", found({"pipelineParallelSize": 65}))

    assert (problem.path, problem.code) == ("spec.pipelineParallelSize", Reason.UNSUPPORTED_BY_TOOLCHAIN)
    assert "1 tensor x 65 pipeline x 1 context" in problem.message
    assert silent("CAP-8", found({"pipelineParallelSize": 64}))


def test_init_7_a_number_of_ranks_without_planner_is_told() -> None:
    assert warned("INIT-7", found({"autoParallelWorldSize": 8})).path == "spec.autoParallelWorldSize"
    assert silent("INIT-7", found({"autoParallelWorldSize": 1, "autoParallel": True}))


@pytest.mark.parametrize(
    ("degrees", "fine"),
    [
        ({"moeExpertParallelSize": 8}, True),
        ({"moeTensorParallelSize": 2}, True),
        ({"moeTensorParallelSize": 2, "moeExpertParallelSize": 4}, True),
        ({"moeTensorParallelSize": 2, "moeExpertParallelSize": 2}, False),
        ({"moeExpertParallelSize": 3}, False),
        ({"moeExpertParallelSize": 16}, False),
        ({}, True),
    ],
)
def test_map_2_expert_degrees_multiply_to_the_tensor_ranks(degrees: dict[str, int], fine: bool) -> None:
    """Q4, Q17: what is not written is derived, what is written is refused with its path."""
    result = found(for_engine(tensorParallelSize=8, **degrees))

    assert silent("MAP-2", result) is fine
    if not fine:
        assert refused("MAP-2", result).path == f"spec.{next(iter(degrees))}"


def test_map_5_experts_and_context_parallelism_exclude_each_other() -> None:
    both = for_engine(tensorParallelSize=2, moeExpertParallelSize=2, contextParallelSize=2)

    assert refused("MAP-5", found(both)).path == "spec.moeExpertParallelSize"
    assert silent("MAP-5", found(for_engine(tensorParallelSize=2, moeExpertParallelSize=2)))
    assert silent("MAP-5", found(for_engine(contextParallelSize=2)))


def test_par_8_a_tensor_group_over_nodes_is_told() -> None:
    over = for_engine(tensorParallelSize=16, gpusPerNode=8)

    assert warned("PAR-8", found(over)).path == "spec.tensorParallelSize"
    assert silent("PAR-8", found(for_engine(tensorParallelSize=8, pipelineParallelSize=2, gpusPerNode=8)))
    assert silent("PAR-8", found(for_engine(tensorParallelSize=16)))
    assert "nodes of 4 GPUs" in warned("PAR-8", found(for_engine(tensorParallelSize=8), None, [a_node(gpus=4)])).message


def test_fit_1_heads_divide_by_the_tensor_ranks() -> None:
    problem = refused("FIT-1", found({"tensorParallelSize": 3}, llama_8b()))

    assert (problem.path, problem.code) == ("spec.tensorParallelSize", Reason.MODEL_MISMATCH)
    assert "32 attention heads of /models/SmolLM2-135M-Instruct do not divide by 3; possible are 1, 2, 4" in str(
        problem
    )
    assert silent("FIT-1", found({"tensorParallelSize": 4}, llama_8b()))


def test_fit_2_key_heads_divide_or_are_copied() -> None:
    six = llama_8b(num_key_value_heads=6, num_attention_heads=48)

    assert "6 key and value heads" in refused("FIT-2", found({"tensorParallelSize": 4}, six)).message
    assert silent("FIT-2", found({"tensorParallelSize": 12}, six))
    assert silent("FIT-2", found({"tensorParallelSize": 3}, six))


def test_fit_3_widths_and_experts_divide() -> None:
    odd = llama_8b(intermediate_size=14337)
    assert "14337 columns of the feed-forward" in refused("FIT-3", found({"tensorParallelSize": 2}, odd)).message

    nine = mixtral(experts=9)
    spec = for_engine(tensorParallelSize=8, moeExpertParallelSize=8)
    assert refused("FIT-3", found(spec, nine)).path == "spec.moeExpertParallelSize"
    assert silent("FIT-3", found(spec, mixtral()))


def test_fit_4_a_ranks_share_divides_by_the_group() -> None:
    spec = for_engine(tensorParallelSize=8, quantConfig={"quantAlgo": "W4A16_AWQ", "groupSize": 128})
    facts = llama_8b(intermediate_size=13824)

    problem = refused("FIT-4", found(spec, facts))
    assert problem.path == "spec.quantConfig.groupSize"
    assert "groups of 128 do not divide a rank's share of the feed-forward output (13824 / 8 = 1728)" in problem.message
    assert problem.hint == "use a group of 32 or 64 or tensorParallelSize 1, 2, 4"
    for size in (1, 2, 4):
        again = found(for_engine(tensorParallelSize=size, quantConfig={"quantAlgo": "W4A16_AWQ"}), facts)
        assert others(again) == []
    assert silent("FIT-4", found(spec, llama_8b()))
    assert silent("FIT-4", found(for_engine(tensorParallelSize=8, quantConfig={"quantAlgo": "FP8"}), facts))


def test_fit_4_a_mapping_that_cuts_a_group_is_refused_with_those_that_work() -> None:
    spec = {"tensorParallelSize": 8, "quantConfig": {"quantAlgo": "W4A16", "groupSize": 128}}
    facts = llama_8b(intermediate_size=13824)

    problem = refused("FIT-4", found(spec, facts))
    assert (problem.path, problem.code) == ("spec.tensorParallelSize", Reason.MODEL_MISMATCH)
    assert "a rank of 8 has 1728 columns of the matrix that reads the feed-forward layer" in problem.message
    assert "no whole groups of 128" in problem.message
    assert str(problem.hint).startswith("use tensorParallelSize 1 or 2 or 4, or quantConfig.groupSize 64 or 32, or ")
    for size in (1, 2, 4):
        assert found({**spec, "tensorParallelSize": size}, facts).problems == ()
    for group in (64, 32):
        assert found({**spec, "quantConfig": {"quantAlgo": "W4A16", "groupSize": group}}, facts).problems == ()
    assert found({**spec, "quantConfig": {"quantAlgo": "W8A16"}}, facts).problems == ()


@pytest.mark.parametrize(
    ("quant", "path", "hint"),
    [
        (
            {"quantAlgo": "W4A16", "groupSize": 128},
            "spec.quantConfig.groupSize",
            "quantConfig.groupSize 64 or 32, or use quantConfig.quantAlgo: W8A16, which has no groups",
        ),
        (None, "spec.model", "use the checkpoint that is not quantised"),
    ],
)
def test_fit_4_groups_that_not_even_one_rank_has_whole(quant: dict[str, object] | None, path: str, hint: str) -> None:
    """576 columns are four and a half groups of 128."""
    facts = smollm2_facts(**({} if quant else gptq(128)))

    problem = refused("FIT-4", found({"quantConfig": quant}, facts))
    assert (problem.path, problem.hint) == (path, hint)
    assert "a rank of 1 has 576 columns of the matrix that reads the residual stream" in problem.message


def test_fit_4_a_model_that_no_group_divides_has_another_scheme() -> None:
    problem = refused("FIT-4", found({"quantConfig": {"quantAlgo": "W4A16"}}, smollm2_facts(intermediate_size=1000)))
    assert problem.path == "spec.quantConfig.quantAlgo"
    assert "use quantConfig.quantAlgo: W8A16" in str(problem.hint)


def test_fit_4_experts_are_divided_by_their_own_ranks() -> None:
    facts = mixtral(expert_intermediate_size=448, expert_parameters=32 * 8 * 3 * 4096 * 448)
    spec = {"tensorParallelSize": 8, "quantConfig": {"quantAlgo": "W4A16", "groupSize": 64}}

    assert "has 56 columns of the matrix that reads the experts' layer" in refused("FIT-4", found(spec, facts)).message
    assert found({**spec, "moeExpertParallelSize": 8}, facts).problems == ()


def test_map_7_there_is_a_layer_for_each_stage() -> None:
    assert "use at most 32" in str(refused("MAP-7", found({"pipelineParallelSize": 33}, llama_8b())))
    assert silent("MAP-7", found({"pipelineParallelSize": 32}, llama_8b()))


def test_map_1_expert_degrees_of_a_dense_model_are_told() -> None:
    spec = for_engine(tensorParallelSize=2, moeExpertParallelSize=2)

    assert warned("MAP-1", found(spec, llama_8b())).path == "spec.moeExpertParallelSize"
    assert silent("MAP-1", found(spec, mixtral()))


@pytest.mark.parametrize(
    ("spec", "gpus", "said"),
    [
        ({"tensorParallelSize": 9}, 8, "a pod needs 9 GPUs, and the largest node has 8"),
        ({"tensorParallelSize": 8, "gpusPerNode": 8}, 4, "set spec.gpusPerNode to 4 or less"),
        ({}, 0, "no node that the spec's selectors allow has a GPU"),
    ],
)
def test_init_4_gpus_that_no_node_has_are_told_and_waited_for(spec: dict[str, Any], gpus: int, said: str) -> None:
    assert said in warned("INIT-4", found(for_engine(**spec), None, [a_node(gpus=gpus)])).message


def test_init_4_unset_gpus_per_node_follow_the_nodes() -> None:
    spec = for_engine(tensorParallelSize=4, pipelineParallelSize=2)

    assert silent("INIT-4", found(spec, None, [a_node(gpus=4)]))


def test_init_4_enough_gpus_or_no_nodes_need_no_word() -> None:
    assert silent("INIT-4", found(for_engine(tensorParallelSize=8), None, [a_node()]))
    assert silent("INIT-4", found(for_engine(tensorParallelSize=8)))
    assert silent("INIT-4", found({"serving": {"device": "cpu"}}, None, []))


def test_init_4_an_engine_that_is_built_without_gpus_needs_none() -> None:
    def judged(**spec: Any) -> Examination:
        return examine(Case.of(an_engine_spec(**spec), some_defaults(), None, [a_node(gpus=0)]))

    assert silent("INIT-4", judged())
    assert not silent("INIT-4", judged(toolchain="tensorrt"))


def test_mem_2_a_fit_that_was_not_checked_is_told() -> None:
    unlabelled = a_node(memory=None)

    assert "memory was not checked" in warned("MEM-2", found({}, llama_8b(), [unlabelled])).message
    assert silent("MEM-2", found({}, llama_8b(), [unlabelled, a_node("gpu-b")]))
    assert silent("MEM-2", found({"serving": {"device": "cpu"}}, llama_8b(), [unlabelled]))
    assert silent("MEM-2", found({}, llama_8b()))


def test_par_9_ranks_that_cannot_share_the_model_are_refused() -> None:
    spec = {"autoParallel": True, "autoParallelWorldSize": 37}

    problem = refused("PAR-9", found(spec, llama_8b()))
    assert problem.path == "spec.autoParallelWorldSize"
    assert "37 ranks cannot share 32 heads and 32 layers" in problem.message
    assert problem.hint == "the nearest numbers of ranks that can are 34, 36, 38"
    assert not found({**spec, "autoParallelWorldSize": 32}, llama_8b()).problems


def test_par_9_the_planners_choice_is_told() -> None:
    result = found({"autoParallel": True, "dtype": None, "buildConfig": None}, llama_8b(), [a_node()])

    assert [(a.path, a.to_value) for a in by("PAR-9", result)] == [
        ("spec.tensorParallelSize", "1"),
        ("spec.pipelineParallelSize", "1"),
    ]
