"""The estimate of a rank's memory: weights and cache follow from the shape, sharing counted as it happens."""

import dataclasses
from typing import Any

import pytest

from tests.builders import smollm2_facts
from tests.unit.resolve.cases import GIB, H100, a_node, found, gptq, llama_8b, mixtral, refused, warned
from trtllm_engine.contract import Mapping, QuantAlgo
from trtllm_operator.api.conditions import Reason
from trtllm_operator.resolve.memory import Gpu, Load, MemoryTable, cache_bytes, largest, table, weight_bits

ONE = Load(mapping=Mapping(), dtype="bfloat16", sequences=4, length=2048, step_tokens=2048)


def a_load(**changes: object) -> Load:
    return dataclasses.replace(ONE, **changes)  # type: ignore[arg-type]


def rows(result: MemoryTable) -> dict[str, int]:
    return {row.what: row.bytes for row in result.rows}


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_one_rank_holds_every_parameter_once(dtype: str, width: int) -> None:
    """Tied embeddings are among the parameters once, and are held once."""
    for facts in (smollm2_facts(), llama_8b()):
        assert rows(table(facts, a_load(dtype=dtype)))["weights"] == facts.parameters * width


@pytest.mark.parametrize("mapping", [Mapping(tp=2), Mapping(tp=8), Mapping(tp=4, pp=2), Mapping(pp=4)])
def test_ranks_together_hold_the_model_and_what_is_copied(mapping: Mapping) -> None:
    facts, ranks = llama_8b(), mapping.world_size
    weights = rows(table(facts, a_load(mapping=mapping)))["weights"]

    # The heaviest stage holds an embedding table that the others do not.
    table_bytes = facts.vocab_size * facts.hidden_size * 2
    assert facts.weight_bytes / ranks <= weights <= facts.weight_bytes / ranks + table_bytes


def test_key_heads_are_copied_where_there_are_more_ranks_than_heads() -> None:
    facts = llama_8b(num_key_value_heads=2)

    four, two = (cache_bytes(facts, a_load(mapping=Mapping(tp=tp))) for tp in (4, 2))
    assert four == two == cache_bytes(facts, ONE) // 2


def test_tied_embeddings_are_on_the_first_and_on_the_last_stage() -> None:
    facts = smollm2_facts()
    whole, half = (rows(table(facts, a_load(mapping=Mapping(pp=pp))))["weights"] for pp in (1, 2))

    embedding = facts.vocab_size * facts.hidden_size * 2
    assert half == pytest.approx((whole - embedding) / 2 + embedding, rel=1e-3)


def test_experts_are_shared_by_the_tensor_ranks_in_either_way() -> None:
    by_slice = rows(table(mixtral(), a_load(mapping=Mapping(tp=8))))["weights"]
    by_expert = rows(table(mixtral(), a_load(mapping=Mapping(tp=8, moe_tp=1, moe_ep=8))))["weights"]

    assert by_slice == by_expert == pytest.approx(mixtral().weight_bytes / 8, rel=0.01)


def test_the_cache_is_the_product_of_the_networks_shapes() -> None:
    # keys and values x layers x heads x width x bytes x tokens x sequences
    assert cache_bytes(smollm2_facts(), a_load(dtype="float16")) == 2 * 30 * 3 * 64 * 2 * 2048 * 4
    assert cache_bytes(smollm2_facts(), a_load(cache_algo="FP8")) == 30 * 3 * 64 * 2 * 2048 * 4


def test_layers_with_a_window_keep_it_alone_where_the_runtime_does_so() -> None:
    facts = smollm2_facts(sliding_window=512, windowed_layers=15)

    assert cache_bytes(facts, a_load(windowed_cache=True)) == 2 * 3 * 64 * 2 * 4 * (15 * 2048 + 15 * 512)
    assert cache_bytes(facts, ONE) == 2 * 3 * 64 * 2 * 4 * 30 * 2048
    assert "windowed layers 512" in table(facts, a_load(windowed_cache=True)).rows[1].arithmetic


def test_context_ranks_share_each_sequence() -> None:
    assert cache_bytes(llama_8b(), a_load(mapping=Mapping(cp=4))) == cache_bytes(llama_8b(), ONE) // 4


@pytest.mark.parametrize(
    ("algo", "bits"),
    [
        (None, 16),
        ("W8A16", 8.125),
        ("W4A16", 4.125),
        ("FP8", 8),
        ("W4A16_AWQ", 4.125),
        ("NVFP4", 4.5),
        ("W8A8_SQ_PER_CHANNEL", 8),
        ("MIXED_PRECISION", 16),
    ],
)
def test_quantised_weights_are_counted_with_their_scales(algo: str | None, bits: float) -> None:
    assert weight_bits(algo, "bfloat16") == bits


def test_embeddings_stay_as_they_are_when_layers_are_quantised() -> None:
    facts = llama_8b()
    outside = 2 * facts.vocab_size * facts.hidden_size + facts.hidden_size * (1 + 2 * facts.num_layers)

    weights = rows(table(facts, a_load(quant_algo="FP8")))["weights"]
    assert weights == facts.parameters - outside + 2 * outside


@pytest.mark.parametrize(
    ("spec", "stored", "bits"),
    [
        ({"quantConfig": {"quantAlgo": "W8A16"}}, {}, 8 + 16 / 4096),
        ({"quantConfig": {"quantAlgo": "W4A16"}}, {}, 4 + 16 / 128),
        ({"quantConfig": {"quantAlgo": "W4A16", "groupSize": 32}}, {}, 4 + 16 / 32),
        ({"quantConfig": {"quantAlgo": "W4A16"}, "dtype": "float32"}, {}, 4 + 32 / 128),
        ({}, gptq(64), 4 + 16 / 64),
        ({}, gptq(None, QuantAlgo.W8A16), 8 + 16 / 4096),
    ],
)
def test_own_engines_keep_the_matrices_small_and_the_rest_in_their_type(
    spec: dict[str, Any], stored: dict[str, Any], bits: float
) -> None:
    """Whether the build rounds them or the checkpoint has them so."""
    result = found({"dtype": "bfloat16", **spec}, llama_8b(**stored))
    assert result.memory is not None, result.problems

    outside = 2 * llama_8b().vocab_size * 4096 + 4096 * (1 + 2 * 32)
    wide = 4 if spec.get("dtype") == "float32" else 2
    expected = (llama_8b().parameters - outside) * bits / 8 + outside * wide
    assert rows(result.memory)["weights"] == int(expected)


def test_weights_that_stay_as_they_are_stored_are_counted_so() -> None:
    facts = llama_8b(quantization="awq", weight_bytes=5_000_000_000)
    assert rows(table(facts, a_load(as_stored=True)))["weights"] == pytest.approx(5_000_000_000, rel=1e-6)


def test_random_weights_are_not_those_of_the_checkpoint() -> None:
    spec = {"dtype": "bfloat16", "loadFormat": "dummy"}
    result = found(spec, llama_8b(**gptq(64)))
    assert result.memory is not None
    assert rows(result.memory)["weights"] == llama_8b().parameters * 2


def test_every_row_shows_its_arithmetic() -> None:
    arithmetic = [row.arithmetic for row in table(llama_8b(), ONE).rows]

    assert arithmetic[0] == "8,030,261,248 of 8,030,261,248 parameters x 2 bytes each"
    assert arithmetic[1] == "4 sequences x 2048 tokens x 2 x 32 layers x 8 heads x 128 wide x 2 bytes"
    assert all(text.endswith("; estimate") for text in arithmetic[2:])


def test_the_largest_that_fits_is_found() -> None:
    assert [largest(lambda n, most=most: n <= most, 1000) for most in (0, 1, 7, 1000, 2000)] == [None, 1, 7, 1000, 1000]  # type: ignore[misc]


def test_headroom_stays_free() -> None:
    gpu = Gpu(product="x", memory_bytes=100, headroom=0.25)
    assert (gpu.available_bytes, table(llama_8b(), ONE, gpu).fits, table(llama_8b(), ONE).fits) == (75, False, None)


@pytest.mark.parametrize("gib", [6, 8, 12, 16, 22, 24, 40, 80])
@pytest.mark.parametrize(
    "sizes", [{}, {"maxSeqLen": 2048}, {"maxSeqLen": 2048, "maxInputLen": 1024}, {"maxBatchSize": 2}]
)
def test_what_is_chosen_to_fit_fits_and_the_next_batch_would_not(gib: int, sizes: dict[str, int]) -> None:
    """Activations grow with the batch too, so sizing and judging must count the same load."""
    written = {"maxBatchSize": None, "maxInputLen": None, "maxSeqLen": None, **sizes}
    nodes, facts = [a_node(memory=gib * GIB)], smollm2_facts()
    result = found({"buildConfig": written}, facts, nodes)
    assert result.problems == ()
    assert result.memory is not None and result.memory.fits
    chosen = next((int(a.to_value) for a in result.adjustments if a.path.endswith("maxBatchSize")), None)
    if chosen is not None and chosen < 256:
        length = next((int(a.to_value) for a in result.adjustments if a.path.endswith("maxSeqLen")), 2048)
        prompt = sizes.get("maxInputLen", length)
        more = {"maxBatchSize": chosen + 1, "maxInputLen": prompt, "maxSeqLen": length}
        assert refused("MEM-1", found({"buildConfig": more}, facts, nodes))


def test_mem_1_what_does_not_fit_is_refused_with_the_arithmetic_and_what_would() -> None:
    spec = {"dtype": None, "buildConfig": {"maxBatchSize": 256, "maxSeqLen": 8192, "maxInputLen": None}}

    problem = refused("MEM-1", found(spec, llama_8b(), [a_node()]))

    assert (problem.path, problem.code) == ("spec.buildConfig.maxBatchSize", Reason.DOES_NOT_FIT_MEMORY)
    assert problem.message.startswith("rank 0 needs 273.")
    assert f"{H100} has 72.00 GiB of 80.00 GiB (10% stay free)" in problem.message
    assert "spec.buildConfig.maxBatchSize 54 would fit; spec.buildConfig.maxSeqLen 1747 would fit" in str(problem.hint)
    assert f"4 x {H100} would do (tensorParallelSize 4" in str(problem.hint)


def test_mem_1_weights_that_cannot_fit_are_told_with_the_gpus_that_would_do() -> None:
    problem = refused("MEM-1", found({"dtype": None, "buildConfig": None}, mixtral(), [a_node()]))

    assert problem.path == "spec.model"
    assert f"2 x {H100} would do (tensorParallelSize 2" in str(problem.hint)
    assert str(problem.hint).endswith("1 x H200 would do")


def test_mem_1_a_larger_gpu_of_the_cluster_is_pointed_to() -> None:
    nodes = [a_node(), a_node("large", product="NVIDIA-H200", memory=141 * 10**9)]

    hint = str(refused("MEM-1", found({"dtype": None, "buildConfig": None}, mixtral(), nodes)).hint)
    assert "a NVIDIA-H200: set spec.engine.target.gpuProduct to it" in hint


def test_mem_1_the_refusal_can_be_made_a_warning() -> None:
    result = found({"dtype": None, "buildConfig": None}, mixtral(), [a_node()], memory_fit="warn")

    assert "rank 0 needs" in warned("MEM-1", result).message
    assert result.chosen is not None


def test_mem_1_the_target_and_the_selectors_choose_among_the_nodes() -> None:
    nodes = [a_node(memory=16 * GIB, product="small", labels={"pool": "a"}), a_node("b", labels={"pool": "b"})]
    just = {"dtype": None, "buildConfig": None}

    assert found(just, llama_8b(), nodes).problems
    assert not found({**just, "engine": {"target": {"gpuProduct": H100}}}, llama_8b(), nodes).problems
    assert not found({**just, "scheduling": {"nodeSelector": {"pool": "b"}}}, llama_8b(), nodes).problems


def test_mem_1_without_known_gpus_nothing_is_judged() -> None:
    for nodes in (None, [], [a_node(memory=0)]):
        result = found({"dtype": None, "buildConfig": None}, mixtral(), nodes)
        assert result.problems == ()
        assert result.memory is not None and result.memory.fits is None
