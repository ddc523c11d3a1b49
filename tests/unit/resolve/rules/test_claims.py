"""Features settle TensorRT-LLM's options: defaults give way and are told, what was written is never overridden."""

from typing import Any

import pytest

from tests.unit.resolve.cases import a_node, adjusted, by, for_engine, found, others, refused, silent
from trtllm_operator.api.llm_args import LlmArgs, iter_fields
from trtllm_operator.resolve.options import REFERENCE

PLUGINS = "buildConfig.pluginConfig"
REUSE, PAGED, FP8 = "kvCacheConfig.enableBlockReuse", f"{PLUGINS}.usePagedContextFmha", f"{PLUGINS}.useFp8ContextFmha"
ON, OFF = ("true (default)", "false"), ("false (default)", "true")
FP8_MODEL = {"quantConfig": {"quantAlgo": "FP8"}}
FP8_BOTH = {"quantConfig": {"quantAlgo": "FP8", "kvCacheQuantAlgo": "FP8"}}
STREAMING = {"maxAttentionWindow": [2048], "sinkTokenLength": 4}


def plugins(spec: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return for_engine(buildConfig={"pluginConfig": options}, **(spec or {}))


def all_adjusted(spec: dict[str, Any]) -> dict[str, tuple[str | None, str]]:
    result = found(spec)
    assert others(result) == []
    return {a.path.removeprefix("spec."): (a.from_value, a.to_value) for a in result.adjustments}


def test_a_plain_model_needs_no_change() -> None:
    assert all_adjusted(for_engine()) == {}


def test_fmha_4_fp8_works_with_the_default_block_reuse() -> None:
    assert all_adjusted(for_engine(**FP8_MODEL)) == {FP8: ON}
    assert all_adjusted(for_engine(**FP8_BOTH)) == {}


def test_arb_6_beams_work_with_the_default_block_reuse() -> None:
    assert all_adjusted(for_engine(maxBeamWidth=4)) == {REUSE: ON}
    assert all_adjusted(for_engine(buildConfig={"maxBeamWidth": 4})) == {REUSE: ON}
    assert all_adjusted(for_engine(maxBeamWidth=4, kvCacheConfig={"enableBlockReuse": False})) == {}


def test_arb_6_beams_and_reuse_that_are_both_written_are_refused_with_both_named() -> None:
    problem = refused("ARB-6", found(for_engine(maxBeamWidth=4, kvCacheConfig={"enableBlockReuse": True})))

    assert problem.path == "spec.maxBeamWidth"
    assert "spec.kvCacheConfig.enableBlockReuse to be false" in problem.message
    assert problem.hint == "remove one of spec.maxBeamWidth and spec.kvCacheConfig.enableBlockReuse"


def test_arb_3_streaming_works_with_its_window_and_sinks() -> None:
    """BLD-3 too."""
    assert all_adjusted(plugins({"kvCacheConfig": STREAMING}, streamingllm=True)) == {PAGED: ON, REUSE: ON}


def test_arb_3_streaming_and_chunked_prefill_exclude_each_other() -> None:
    spec = plugins({"kvCacheConfig": STREAMING, "enableChunkedPrefill": True}, streamingllm=True)

    problem = refused("ARB-2", found(spec))
    assert problem.path == "spec.enableChunkedPrefill"
    assert "spec.buildConfig.pluginConfig.streamingllm: true needs it to be false" in problem.message


def test_arb_2_chunked_prefill_keeps_the_paged_attention() -> None:
    assert all_adjusted(for_engine(enableChunkedPrefill=True)) == {}
    assert refused("ARB-2", found(plugins({"enableChunkedPrefill": True}, usePagedContextFmha=False)))


def test_arb_5_paged_attention_goes_where_fp8_attention_is_written_against_the_cache() -> None:
    """Q8, Q9."""
    assert all_adjusted(plugins(FP8_MODEL, useFp8ContextFmha=True)) == {PAGED: ON, REUSE: ON}
    assert all_adjusted(plugins(FP8_BOTH, useFp8ContextFmha=False)) == {PAGED: ON, REUSE: ON}
    assert all_adjusted(plugins(FP8_BOTH, useFp8ContextFmha=True)) == {}


def test_arb_7_reuse_goes_where_the_paged_attention_is_off() -> None:
    result = found(plugins(usePagedContextFmha=False))

    assert adjusted("ARB-7", result) == {REUSE: ON}
    assert "the spec says false" in by("ARB-7", result)[0].reason
    assert refused("ARB-7", found(plugins({"kvCacheConfig": {"enableBlockReuse": True}}, usePagedContextFmha=False)))


def test_fmha_1_without_fused_attention_there_is_no_kind_of_it() -> None:
    assert all_adjusted(plugins(contextFmha=False)) == {PAGED: ON, FP8: ON, REUSE: ON}


def test_fmha_2_an_fp8_cache_under_another_model() -> None:
    assert all_adjusted(for_engine(quantConfig={"kvCacheQuantAlgo": "FP8"})) == {PAGED: ON, FP8: ON, REUSE: ON}


def test_fmha_3_older_gpus_have_no_fp8_attention() -> None:
    spec = for_engine(quantConfig={"quantAlgo": "W4A8_AWQ"})
    old = found(spec, None, [a_node(capability="8.6")])

    assert {a.path.removeprefix("spec.") for a in by("FMHA-3", old)} == {FP8}
    assert silent("FMHA-3", found(spec, None, [a_node(capability="8.9")]))
    written = plugins({"quantConfig": {"quantAlgo": "W4A8_AWQ"}}, useFp8ContextFmha=True)
    problem = refused("FMHA-3", found(written, None, [a_node(capability="8.6")]))
    assert (problem.path, problem.hint) == (f"spec.{FP8}", f"remove spec.{FP8}")


def test_fmha_5_an_int8_cache_turns_the_paged_attention_off() -> None:
    assert all_adjusted(for_engine(quantConfig={"kvCacheQuantAlgo": "INT8"})) == {PAGED: ON, REUSE: ON}


def test_cxx_6_logits_of_prompts_turn_reuse_off() -> None:
    assert all_adjusted(for_engine(buildConfig={"gatherContextLogits": True})) == {REUSE: ON}


def test_bld_5_fp8_is_strongly_typed() -> None:
    weakly = {"stronglyTyped": False}

    assert refused("BLD-5", found(for_engine(buildConfig=weakly, **FP8_MODEL))).path == "spec.quantConfig.quantAlgo"
    cache = for_engine(buildConfig=weakly, quantConfig={"kvCacheQuantAlgo": "FP8"})
    assert refused("BLD-5", found(cache)).path == "spec.quantConfig.kvCacheQuantAlgo"
    assert silent("BLD-5", found(for_engine(buildConfig=weakly)))


def test_bld_9_nvfp4_takes_its_own_matrix_product_unless_another_is_written() -> None:
    """PLG-4: disable is such a word."""
    nvfp4 = {"quantConfig": {"quantAlgo": "NVFP4"}}

    assert adjusted("BLD-9", found(for_engine(**nvfp4))) == {f"{PLUGINS}.gemmPlugin": (None, "nvfp4")}
    assert silent("BLD-9", found(plugins(nvfp4, gemmPlugin="disable")))


def test_set_8_a_fast_build_keeps_weights_outside() -> None:
    """Q9: FP8 as text is FP8."""
    for spec in (for_engine(fastBuild=True), for_engine(fastBuild=True, **FP8_MODEL)):
        assert adjusted("SET-8", found(spec)) == {f"{PLUGINS}.manageWeights": OFF}


@pytest.mark.parametrize(
    "spec",
    [
        {"quantConfig": {"quantAlgo": "FP8"}},
        {"maxBeamWidth": 4},
        {"buildConfig": {"pluginConfig": {"streamingllm": True}}, "kvCacheConfig": STREAMING},
    ],
)
def test_own_toolchains_have_nothing_to_settle(spec: dict[str, Any]) -> None:
    assert found(spec).adjustments == ()


def test_core_4_every_option_that_is_claimed_exists() -> None:
    known = {f"spec.{field.path}" for field in iter_fields(LlmArgs)}
    assert set(REFERENCE) <= known
    specs = [
        for_engine(**FP8_MODEL),
        for_engine(maxBeamWidth=4),
        plugins(contextFmha=False),
        for_engine(enableLora=True),
    ]
    for spec in specs:
        assert {adjustment.path for adjustment in found(spec).adjustments} <= known
