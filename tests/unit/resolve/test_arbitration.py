"""What the user left open is chosen and told; what the user wrote stays."""

from typing import Any

import pytest

from tests.builders import a_deployment_spec, smollm2_facts, some_defaults
from tests.unit.resolve.cases import GIB, a_node, found, llama_8b, refused
from trtllm_engine.contract import BuildArgs, Mapping, ModelFacts
from trtllm_operator.api.nodes import NodeFacts
from trtllm_operator.resolve.arbitration import Arbitrated, arbitrate
from trtllm_operator.resolve.layout import Layout
from trtllm_operator.resolve.rules.case import Case

UNASKED: dict[str, Any] = {"dtype": None, "buildConfig": None}


def arbitrated(
    spec: dict[str, Any] | None = None,
    *,
    nodes: list[NodeFacts] | None = None,
    model: ModelFacts | None = None,
    **facts: Any,
) -> Arbitrated:
    return arbitrate(
        Case.of(a_deployment_spec(**(spec or {})), some_defaults(), model or smollm2_facts(**facts), nodes)
    )


def told(result: Arbitrated) -> dict[str, tuple[str | None, str]]:
    return {adjustment.path: (adjustment.from_value, adjustment.to_value) for adjustment in result.adjustments}


def test_what_the_user_wrote_stays_and_needs_no_word() -> None:
    result = arbitrated()

    assert result.args == BuildArgs(dtype="float32", max_batch_size=8, max_input_len=1024, max_seq_len=2048)
    assert result.adjustments == ()


def test_sizes_that_were_left_out_are_chosen_and_told() -> None:
    result = arbitrated({"buildConfig": None}, max_position_embeddings=131072)

    assert result.args == BuildArgs(dtype="float32", max_batch_size=8, max_input_len=8192, max_seq_len=8192)
    assert told(result) == {
        "spec.buildConfig.maxSeqLen": (None, "8192"),
        "spec.buildConfig.maxInputLen": (None, "8192"),
        "spec.buildConfig.maxBatchSize": (None, "8"),
    }
    assert "takes 2.81 GiB" in result.adjustments[-1].reason


def test_sizes_at_the_top_count_for_the_build() -> None:
    """Q14: all of them, not the batch alone."""
    result = arbitrated({"buildConfig": None, "maxBatchSize": 3, "maxInputLen": 100, "maxSeqLen": 200})

    assert result.args == BuildArgs(dtype="float32", max_batch_size=3, max_input_len=100, max_seq_len=200)
    assert result.adjustments == ()


@pytest.mark.parametrize(
    ("written", "positions", "sequence"),
    [
        ({}, 2048, 2048),
        ({}, 131072, 8192),
        ({"maxInputLen": 16000}, 131072, 16000),
        ({"maxInputLen": 16000}, 16384, 16000),
    ],
)
def test_an_unasked_sequence_is_the_models_at_most_8192_but_holds_the_prompt(
    written: dict[str, int], positions: int, sequence: int
) -> None:
    result = arbitrated(
        {"buildConfig": {"maxSeqLen": None, "maxInputLen": None, **written}}, max_position_embeddings=positions
    )

    assert result.args.max_seq_len == sequence
    assert result.args.max_input_len <= sequence


def test_an_unasked_batch_is_the_largest_that_fits_the_gpu() -> None:
    result = arbitrated(UNASKED, nodes=[a_node()], model=llama_8b())

    assert (result.args.max_seq_len, result.args.max_batch_size) == (8192, 54)
    assert found(UNASKED, llama_8b(), [a_node()]).memory.fits  # type: ignore[union-attr]
    more = {"dtype": None, "buildConfig": {"maxBatchSize": 55, "maxSeqLen": 8192, "maxInputLen": None}}
    assert refused("MEM-1", found(more, llama_8b(), [a_node()])).path == "spec.buildConfig.maxBatchSize"


def test_of_different_gpus_the_smallest_must_do() -> None:
    nodes = [a_node(), a_node("small", product="NVIDIA-L4", memory=24 * GIB, gpus=1)]
    result = arbitrated(UNASKED, nodes=nodes, model=llama_8b())

    assert result.args.max_batch_size == 4
    assert "NVIDIA-L4" in result.adjustments[-1].reason


def test_an_unasked_length_gives_way_where_not_even_one_sequence_fits() -> None:
    result = arbitrated(UNASKED, nodes=[a_node(memory=20 * GIB)], model=llama_8b())

    assert result.args.max_batch_size == 1
    assert 1 < result.args.max_seq_len < 8192
    assert "the most that fits" in result.adjustments[0].reason


def test_a_small_model_does_not_get_an_endless_batch() -> None:
    assert arbitrated(UNASKED, nodes=[a_node()]).args.max_batch_size == 256


def test_on_a_cpu_the_nodes_gpus_do_not_matter() -> None:
    result = arbitrated({**UNASKED, "serving": {"device": "cpu"}}, nodes=[a_node()])

    assert result.args.max_batch_size == 8


@pytest.mark.parametrize(
    ("world", "gpus", "mapping", "layout"),
    [
        (8, 8, Mapping(tp=8), Layout(pods=1, gpus_per_pod=8)),
        (8, 4, Mapping(tp=4, pp=2), Layout(pods=2, gpus_per_pod=4)),
        (5, 4, Mapping(pp=5), Layout(pods=1, gpus_per_pod=5)),
    ],
)
def test_par_9_the_planner_lays_ranks_out_on_the_nodes(world: int, gpus: int, mapping: Mapping, layout: Layout) -> None:
    """Ranks that the nodes cannot share evenly wait for a larger one."""
    spec = {**UNASKED, "autoParallel": True, "autoParallelWorldSize": world}
    result = arbitrated(spec, nodes=[a_node(gpus=gpus)], model=llama_8b())

    assert (result.mapping, result.layout) == (mapping, layout)
    assert [a.to_value for a in result.adjustments if a.rule == "PAR-9"] == [str(mapping.tp), str(mapping.pp)]


@pytest.mark.parametrize(
    ("spec", "checkpoint", "dtype", "rule"),
    [
        ({"dtype": None}, "bfloat16", "bfloat16", None),
        ({"dtype": "auto"}, "float32", "float16", "SIZE-1"),
        ({"dtype": None, "serving": {"device": "cpu"}}, "float32", "float32", "SIZE-1"),
        ({"dtype": "bfloat16"}, "float32", "bfloat16", None),
        (
            {"dtype": None, "engine": {"toolchain": "tensorrt_rtx", "target": {"computeCapability": "7.5"}}},
            "bfloat16",
            "float16",
            "INIT-2",
        ),
    ],
)
def test_init_2_the_dtype_follows_the_checkpoint_unless_something_speaks_against_it(
    spec: dict[str, Any], checkpoint: str, dtype: str, rule: str | None
) -> None:
    result = arbitrated(spec, dtype=checkpoint)

    assert result.args.dtype == dtype
    assert [a.rule for a in result.adjustments if a.path == "spec.dtype"] == ([rule] if rule else [])


def test_a_target_means_nothing_to_an_engine_for_any_device() -> None:
    result = arbitrated({"engine": {"target": {"computeCapability": "8.9"}}})

    assert result.target.compute_capability is None
    assert result.adjustments == ()
