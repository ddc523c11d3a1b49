"""What a toolchain can do, and where."""

import re
from typing import Any

import pytest

from tests.builders import an_engine_spec, smollm2_facts, some_defaults
from tests.unit.resolve.cases import (
    a_node,
    for_engine,
    for_pytorch,
    found,
    gptq,
    llama_8b,
    others,
    refused,
    silent,
    warned,
)
from trtllm_engine.contract import QuantAlgo, Toolchain
from trtllm_operator.api.conditions import Reason
from trtllm_operator.resolve.examination import Examination, examine
from trtllm_operator.resolve.rules.case import Case

GPU_LIMIT = {"limits": {"nvidia.com/gpu": 1}}
RTX = {"toolchain": "tensorrt_rtx", "target": {"computeCapability": "8.9"}}


def engine(**spec: Any) -> Examination:
    return examine(Case.of(an_engine_spec(**spec), some_defaults()))


def test_cap_1_a_toolchain_or_backend_of_a_later_version_is_refused_at_its_field() -> None:
    assert refused("CAP-1", found(for_engine())).path == "spec.engine.toolchain"
    assert refused("CAP-1", engine(toolchain="tensorrt_llm")).path == "spec.toolchain"
    assert refused("CAP-1", found(for_pytorch())).path == "spec.backend"
    assert silent("CAP-1", found({}))


def test_cap_1_only_what_the_object_can_use_is_offered() -> None:
    for spec in (for_engine(), for_pytorch()):
        assert str(refused("CAP-1", found(spec))).endswith("torch")
        assert "tensorrt_rtx" not in str(refused("CAP-1", found(spec)))
    assert refused("CAP-1", engine(toolchain="tensorrt_llm")).hint == "set it to tensorrt, tensorrt_rtx or torch"


def test_no_hint_leads_to_what_is_refused_again() -> None:
    """Whoever follows a hint to another toolchain or backend of this version is not sent on by the next one."""
    for spec in ({"maxBeamWidth": 4}, for_pytorch(), for_engine(), {"engine": RTX}):
        for problem in found(spec).problems:
            now = (problem.hint or "").replace("tensorrt_llm and backend pytorch will be able to, in a later", "")
            assert not re.search(r"tensorrt|backend", now), problem


def test_cap_2_an_engine_that_cannot_be_served_is_refused_in_a_deployment_only() -> None:
    problem = refused("CAP-2", found({"engine": RTX}))

    assert problem.path == "spec.engine.toolchain"
    assert "built in this version (as an LLMEngine), and not served; set it to torch" in str(problem)
    assert silent("CAP-2", engine())


def test_cap_2_a_default_that_does_not_work_is_said_to_be_the_operators() -> None:
    problem = refused("CAP-2", found({"engine": None}, toolchain=Toolchain.TENSORRT))
    assert "tensorrt (the operator's default)" in problem.message


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        (None, Reason.AMBIGUOUS_GPU, "7.5, 8.0, 8.6, 8.9, 12.0, 12.1"),
        (
            {"computeCapability": "9.0"},
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            '"9.0" is not possible with toolchain tensorrt_rtx, which builds for 7.5, 8.0, 8.6, 8.9, 12.0, 12.1; '
            "tensorrt can",
        ),
        ({"computeCapability": "3.5"}, Reason.UNSUPPORTED_BY_TOOLCHAIN, "no toolchain builds for it"),
    ],
)
def test_cap_3_an_engine_is_for_a_gpu_that_its_toolchain_knows(
    target: dict[str, str] | None, code: Reason, said: str
) -> None:
    problem = refused("CAP-3", engine(target=target))

    assert (problem.path, problem.code) == ("spec.target.computeCapability", code)
    assert said in str(problem)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"dtype": "float16", "target": {"computeCapability": "7.5"}},
        {"toolchain": "tensorrt", "target": {"computeCapability": "9.0"}},
        {"toolchain": "torch", "target": None},
    ],
)
def test_cap_3_an_engine_that_can_be_built_is_not_refused(spec: dict[str, Any]) -> None:
    assert engine(**spec).problems == ()


def test_cap_4_a_target_without_effect_is_told() -> None:
    result = found({"engine": {"target": {"computeCapability": "8.9"}}})

    assert warned("CAP-4", result).path == "spec.engine.target.computeCapability"
    assert silent("CAP-4", engine())


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        (
            {"speculativeConfig": {"decodingType": "Medusa", "maxDraftLen": 3}},
            "spec.speculativeConfig.decodingType",
            "Medusa is not possible with toolchain torch; remove it here; tensorrt_llm will be able to, in a later",
        ),
        ({"enableLora": True}, "spec.enableLora", "here; tensorrt_llm and backend pytorch will be able to, in a later"),
        (
            {"quantConfig": {"quantAlgo": "FP8"}},
            "spec.quantConfig.quantAlgo",
            "FP8 is not possible with toolchain torch: of quantising weights during the build it has W8A16 and W4A16; "
            "use W8A16 or W4A16, or remove it here; tensorrt_llm will be able to, in a later version",
        ),
        (
            {"quantConfig": {"kvCacheQuantAlgo": "FP8"}},
            "spec.quantConfig.kvCacheQuantAlgo",
            "FP8 is not possible with toolchain torch: it has no support for quantising the KV cache; "
            "remove it here; tensorrt_llm will be able to, in a later version",
        ),
        (
            for_pytorch(quantConfig={"quantAlgo": "W8A16"}),
            "spec.quantConfig.quantAlgo",
            "W8A16 is not possible with backend pytorch: it has no support for quantising weights",
        ),
        (
            {"maxBeamWidth": 4},
            "spec.maxBeamWidth",
            "4 is not possible with toolchain torch: it has no support for beam search",
        ),
        ({"kvCacheConfig": {"maxAttentionWindow": [128]}}, "spec.kvCacheConfig.maxAttentionWindow", "window"),
        ({"contextParallelSize": 2}, "spec.contextParallelSize", "context parallelism"),
        ({"buildConfig": {"dryRun": True}}, "spec.buildConfig.dryRun", "`llmd plan` shows what would be built"),
        (
            for_pytorch(speculativeConfig={"decodingType": "Lookahead"}),
            "spec.speculativeConfig.decodingType",
            "Lookahead is not possible with backend pytorch: it has no support for Lookahead decoding; remove it here; "
            "tensorrt_llm will be able to, in a later version",
        ),
        (
            for_engine(speculativeConfig={"decodingType": "MTP"}),
            "spec.speculativeConfig.decodingType",
            "toolchain tensorrt_llm: it has no support for multi-token prediction; remove it here; backend pytorch",
        ),
    ],
)
def test_cap_5_a_feature_is_refused_at_its_field_with_who_has_it(spec: dict[str, Any], path: str, said: str) -> None:
    """SPEC-8, Q25 among them: each backend is asked only for what it has."""
    problem = refused("CAP-5", found(spec))

    assert (problem.path, problem.code) == (path, Reason.UNSUPPORTED_BY_TOOLCHAIN)
    assert said in str(problem)


@pytest.mark.parametrize(
    "spec",
    [
        {"enableLora": False},
        {"maxBeamWidth": 1},
        {"quantConfig": {"quantAlgo": "NO_QUANT"}},
        {"loadFormat": "auto"},
        {"buildConfig": {"speculativeDecodingMode": "NONE", "kvCacheType": "PAGED"}},
    ],
)
def test_cap_5_a_value_that_asks_for_nothing_is_not_refused(spec: dict[str, Any]) -> None:
    assert found(spec).problems == ()


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({"kvCacheConfig": {"freeGpuMemoryFraction": 0.9}}, "spec.kvCacheConfig.freeGpuMemoryFraction", "fixed place"),
        ({"batchingType": "STATIC"}, "spec.batchingType", "decides itself"),
        ({"enableBuildCache": {}}, "spec.enableBuildCache", "shared by their content"),
        (for_engine(tokenizerRevision="main"), "spec.tokenizerRevision", "never reads it"),
        (for_engine(iterStatsMaxIterations=5), "spec.iterStatsMaxIterations", "does not pass it on"),
        (for_engine(pytorchBackendConfig={"useCudaGraph": True}), "spec.pytorchBackendConfig.useCudaGraph", "backend"),
    ],
)
def test_cap_6_a_field_without_effect_is_told_with_the_reason(spec: dict[str, Any], path: str, said: str) -> None:
    """Q29 among them."""
    caution = warned("CAP-6", found(spec))

    assert caution.path == path
    assert said in caution.message


def test_cap_7_a_cpu_serves_only_what_runs_on_it() -> None:
    result = found({"engine": RTX, "serving": {"device": "cpu"}})

    assert [problem.path for problem in result.problems] == ["spec.engine.toolchain", "spec.serving.device"]
    assert refused("CAP-7", result).path == "spec.serving.device"
    assert silent("CAP-7", found({"serving": {"device": "cpu"}}))


def test_init_3_bfloat16_needs_a_gpu_that_has_it() -> None:
    problem = refused("INIT-3", engine(target={"computeCapability": "7.5"}))

    assert (problem.path, problem.code) == ("spec.dtype", Reason.UNSUPPORTED_BY_TOOLCHAIN)
    assert "bfloat16 is not possible for compute capability 7.5" in problem.message
    assert silent("INIT-3", engine(dtype="float16", target={"computeCapability": "7.5"}))


def test_cap_9_float32_on_rtx_needs_a_gpu_that_multiplies_it() -> None:
    problem = refused("CAP-9", engine(dtype="float32", target={"computeCapability": "7.5"}))

    assert (problem.path, problem.code) == ("spec.dtype", Reason.UNSUPPORTED_BY_TOOLCHAIN)
    assert silent("CAP-9", engine(dtype="float32"))
    assert silent("CAP-9", engine(dtype="float16", target={"computeCapability": "7.5"}))


@pytest.mark.parametrize("toolchain", ["tensorrt", "tensorrt_rtx"])
def test_cap_10_four_bits_need_a_gpu_that_has_them(toolchain: str) -> None:
    old = {"toolchain": toolchain, "dtype": "float16", "target": {"computeCapability": "7.5"}}
    problem = refused("CAP-10", engine(**old, quantConfig={"quantAlgo": "W4A16"}))

    assert (problem.path, problem.code) == ("spec.quantConfig.quantAlgo", Reason.UNSUPPORTED_BY_TOOLCHAIN)
    assert problem.hint == "use W8A16"
    assert engine(**old, quantConfig={"quantAlgo": "W8A16"}).problems == ()
    assert silent("CAP-10", engine(quantConfig={"quantAlgo": "W4A16"}))
    assert silent("CAP-10", found({"quantConfig": {"quantAlgo": "W4A16"}}, nodes=[a_node(capability="7.5")]))


def test_cap_11_so_do_those_of_the_checkpoint() -> None:
    def built(capability: str, **facts: Any) -> Examination:
        spec = an_engine_spec(dtype="float16", target={"computeCapability": capability})
        return examine(Case.of(spec, some_defaults(), smollm2_facts(**facts)))

    assert refused("CAP-11", built("7.5", **gptq(64))).path == "spec.model"
    assert built("8.6", **gptq(64)).problems == built("7.5", **gptq(64, QuantAlgo.W8A16)).problems == ()


def test_init_3_nodes_say_what_the_target_does_not() -> None:
    """Q28: declared facts of nodes decide, no GPU is asked."""
    spec = for_engine(dtype="bfloat16")

    assert refused("INIT-3", found(spec, None, [a_node(capability="7.5")]))
    assert silent("INIT-3", found(spec, None, [a_node()]))
    assert silent("INIT-3", found(spec))


@pytest.mark.parametrize(
    ("quant", "path"),
    [
        ({"quantAlgo": "W4A16"}, "spec.quantConfig.quantAlgo"),
        ({"quantAlgo": "W8A8_SQ_PER_CHANNEL"}, "spec.quantConfig.quantAlgo"),
        ({"kvCacheQuantAlgo": "INT8"}, "spec.quantConfig.kvCacheQuantAlgo"),
    ],
)
def test_sm_1_blackwell_lacks_some_schemes(quant: dict[str, str], path: str) -> None:
    spec = for_engine(quantConfig=quant)

    assert refused("SM-1", found(spec, None, [a_node(capability="10.0")])).path == path
    assert silent("SM-1", found(spec, None, [a_node(capability="9.0")]))
    assert silent("SM-1", found(spec, None, [a_node(capability="12.0")]))


def test_sm_2_fp8_and_fp4_need_gpus_that_have_them() -> None:
    fp8, fp4 = (for_engine(quantConfig={"quantAlgo": algo}) for algo in ("FP8", "NVFP4"))

    assert "GPUs have it from 8.9" in refused("SM-2", found(fp8, None, [a_node(capability="8.0")])).message
    assert "GPUs have it from 10.0" in refused("SM-2", found(fp4, None, [a_node(capability="9.0")])).message
    assert silent("SM-2", found(fp8, None, [a_node(capability="8.9")]))
    assert silent("SM-2", found(fp8))


def test_plg_3_sm_100_lacks_the_fp8_plugins() -> None:
    spec = for_engine(buildConfig={"pluginConfig": {"lowLatencyGemmPlugin": "fp8"}})

    problem = refused("PLG-3", found(spec, None, [a_node(capability="10.0")]))
    assert problem.path == "spec.buildConfig.pluginConfig.lowLatencyGemmPlugin"
    assert silent("PLG-3", found(spec, None, [a_node()]))
    off = for_engine(buildConfig={"pluginConfig": {"lowLatencyGemmPlugin": "disable"}})
    assert silent("PLG-3", found(off, None, [a_node(capability="10.0")]))


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"serving": {"resources": GPU_LIMIT}}, "spec.serving.resources.limits[nvidia.com/gpu]"),
        ({"engine": {"resources": GPU_LIMIT}}, "spec.engine.resources.limits[nvidia.com/gpu]"),
        (
            {"gpu": {"resourceName": "amd.com/gpu"}, "serving": {"resources": {"limits": {"amd.com/gpu": 1}}}},
            "spec.serving.resources.limits[amd.com/gpu]",
        ),
    ],
)
def test_op_3_gpus_are_not_asked_for_as_resources(spec: dict[str, Any], path: str) -> None:
    assert refused("OP-3", found(spec)).path == path
    assert silent("OP-3", found({"serving": {"resources": {"limits": {"memory": "4Gi"}}}}))


def test_op_4_the_operators_keys_are_its_own() -> None:
    result = found({"podTemplate": {"labels": {"inference.trtllm-operator.dev/ordinal": "7"}}})

    assert refused("OP-4", result).path == "spec.podTemplate.labels[inference.trtllm-operator.dev/ordinal]"
    assert silent("OP-4", found({"podTemplate": {"labels": {"team": "search"}}}))


def test_what_works_needs_no_word() -> None:
    for spec in ({}, {"serving": {"device": "cpu"}}, {"tensorParallelSize": 1, "gpusPerNode": 8}):
        result = found(spec, llama_8b(), [a_node()])
        assert (others(result), result.cautions) == ([], ())
