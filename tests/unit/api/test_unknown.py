"""A key that is not known where it stands gets its right name or place, at every depth, all of them in one answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import a_deployment, an_engine
from trtllm_operator.api.deployment import LLMDeploymentSpec
from trtllm_operator.api.left_out import LEFT_OUT
from trtllm_operator.api.llm_args import FieldFact, LlmArgs, iter_fields
from trtllm_operator.api.problems import Problem
from trtllm_operator.api.schema import parse_spec
from trtllm_operator.api.spellings import IMPLIED, MOVED, NO_PLACE, SIMILAR, SPELLINGS, camel_path
from trtllm_operator.api.tree import aliases, closed_values, place, sections
from trtllm_operator.resolve.defaults import Defaults, DefaultsError

PATHS = {".".join((*path, name)) for path, model in sections(LLMDeploymentSpec) for name in aliases(model)}


def problems(spec: dict[str, Any]) -> dict[str, Problem]:
    return {problem.path: problem for problem in parse_spec(LLMDeploymentSpec, {"model": "owner/name", **spec})[1]}


def hint(spec: dict[str, Any]) -> str:
    (problem,) = problems(spec).values()
    assert problem.message == "unknown field"
    return problem.hint or ""


def nested(path: list[str], value: Any) -> dict[str, Any]:
    """`value` at a path, in sections that are otherwise as they must be."""
    *above, last = path
    result = {last: value}
    for name in reversed(above):
        result = {name: result}
    return result


def beside(fact: FieldFact, key: str) -> dict[str, Any]:
    """A spec with `key` where the field belongs."""
    *above, _ = fact.path.split(".")
    spec = nested([*above, key], None)
    if above == ["speculativeConfig"]:
        kind = fact.model.model_fields["decoding_type"].annotation
        spec["speculativeConfig"]["decodingType"] = closed_values(kind)[0]
    return spec


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        # Misspelt.
        ({"tensorParalelSize": 2}, "tensorParalelSize", "did you mean tensorParallelSize?"),
        ({"kvCacheConfig": {"enableBlokReuse": True}}, "kvCacheConfig.enableBlokReuse", "mean enableBlockReuse?"),
        ({"buildConfig": {"pluginConfig": {"gemPlugin": 1}}}, "buildConfig.pluginConfig.gemPlugin", "gemmPlugin?"),
        ({"freeGpuMemoryFracton": 0.9}, "freeGpuMemoryFracton", "mean spec.kvCacheConfig.freeGpuMemoryFraction?"),
        # The reference's spelling.
        ({"max_batch_size": 8}, "max_batch_size", "it is spelled maxBatchSize: fields are in camelCase"),
        (
            {"free_gpu_memory_fraction": 0.9},
            "free_gpu_memory_fraction",
            "in spec.kvCacheConfig as freeGpuMemoryFraction",
        ),
        # Names of a command line, of a wrapper and of another release.
        ({"tp_size": 2}, "tp_size", "it is called spec.tensorParallelSize here"),
        ({"epSize": 2}, "epSize", "it is called spec.moeExpertParallelSize here"),
        ({"model_name": "a"}, "model_name", "it is called spec.model here, which is there already: remove this one"),
        ({"max_seq_len": 8, "maxSeqLen": 8}, "max_seq_len", "maxSeqLen, which is there already: remove this one"),
        ({"trust_remote_code": True}, "trust_remote_code", "remove it: code from a model's repository is never run"),
        ({"trust_remote_code": False}, "trust_remote_code", "it is spelled trustRemoteCode"),
        ({"engine_args": {"dtype": "auto"}}, "engine_args", "what is in it stands directly in spec"),
        ({"kvCacheConfig": {"dtype": "fp8"}}, "kvCacheConfig.dtype", "spec.pytorchBackendConfig.kvCacheDtype"),
        ({"cuda_graph_config": {"batch_sizes": [1]}}, "cuda_graph_config", "batch_sizes is called spec.pytorchBackend"),
        ({"gpu_memory_utilization": 0.9}, "gpu_memory_utilization", "the nearest is spec.kvCacheConfig.freeGpuMemory"),
        # Lost indentation, or the section next door.
        ({"useCudaGraph": True}, "useCudaGraph", "it belongs in spec.pytorchBackendConfig"),
        ({"kvCacheConfig": {"tokensPerBlock": 64}}, "kvCacheConfig.tokensPerBlock", "buildConfig.pluginConfig.tokens"),
        ({"pytorchBackendConfig": {"enableLora": True}}, "pytorchBackendConfig.enableLora", "belongs in spec itself"),
        ({"maxTokens": 3}, "maxTokens", "it belongs in spec.kvCacheConfig; or did you mean maxNumTokens?"),
        ({"nodeSelector": {}}, "nodeSelector", "it belongs in spec.scheduling"),
        ({"tolerationSeconds": 1}, "tolerationSeconds", "it belongs in spec.scheduling.tolerations[]"),
        # What a spec has not.
        ({"decodingConfig": {}}, "decodingConfig", f"it is left out: {LEFT_OUT['decoding_config']}"),
        ({"reasoning_parser": "r1"}, "reasoning_parser", f"a spec cannot say it: {NO_PLACE['reasoning_parser']}"),
        # Nothing near.
        ({"gpu": {"zzz": 1}}, "gpu.zzz", "known are resourceName"),
        ({"key0": 1}, "key0", "kubectl explain lists the fields"),
        ({"zzz": 1}, "zzz", "kubectl explain lists the fields"),
    ],
)
def test_a_stray_key_is_told_its_name_or_place(spec: dict[str, Any], path: str, said: str) -> None:
    found = problems(spec)

    assert list(found) == [f"spec.{path}"]
    assert said in hint(spec)


def test_all_of_them_are_told_in_one_answer() -> None:
    found = problems(
        {
            "tp_size": 2,
            "useCudaGraph": True,
            "kvCacheConfig": {"fraction": 0.5, "onboardBlocks": 1},
            "speculativeConfig": {"decodingType": "Medusa", "eagleChoices": [[0]], "zzz": 1},
            "scheduling": {"tolerations": [{"key": "a"}, {"kez": "b"}]},
            "buildConfig": {"loraConfig": {"loraDirs": []}},
        }
    )

    assert set(found) == {
        "spec.tp_size",
        "spec.useCudaGraph",
        "spec.kvCacheConfig.fraction",
        "spec.kvCacheConfig.onboardBlocks",
        "spec.speculativeConfig.eagleChoices",
        "spec.speculativeConfig.zzz",
        "spec.scheduling.tolerations[1].kez",
        "spec.buildConfig.loraConfig.loraDirs",
    }


@pytest.mark.parametrize(
    ("spec", "inner"),
    [
        (
            {"kv_cache_config": {"free_gpu_memory_fraction": 2, "maxTokens": 0, "zzz": 1}},
            ["free_gpu_memory_fraction", "maxTokens", "zzz"],
        ),
        ({"kvCacheConfg": {"maxTokens": 0}}, ["maxTokens"]),
        ({"build_config": {"plugin_config": {"gemm_plugin": "x"}}}, ["plugin_config", "plugin_config.gemm_plugin"]),
        ({"speculative_config": {"decodingType": "MTP", "zzz": 1}}, ["zzz"]),
        ({"engin": {"storage": {"siz": 1}}}, ["storage.siz"]),
        ({"kv_cache_config": {"maxTokens": 5}}, []),
    ],
)
def test_the_inside_of_a_misnamed_section_is_checked_too(spec: dict[str, Any], inner: list[str]) -> None:
    (section,) = spec
    found = problems(spec)

    assert sorted(found) == sorted([f"spec.{section}", *(f"spec.{section}.{path}" for path in inner)])


def test_a_configuration_of_the_operator_is_not_looked_up_in_the_cluster() -> None:
    with pytest.raises(DefaultsError) as raised:
        Defaults.load({"zzz": 1})
    assert "known are accessModes" in str(raised.value) and "kubectl" not in str(raised.value)


def test_a_leftover_of_another_kind_of_speculation_is_told_whose_it_is() -> None:
    said = hint({"speculativeConfig": {"decodingType": "MTP", "numMedusaHeads": 3}})

    assert said.startswith("it belongs to decodingType Medusa; remove it, or change decodingType: MTP has maxDraftLen")


@pytest.mark.parametrize(
    ("speculation", "said"),
    [
        ({"maxDraftLen": 3}, "is required: Medusa, Eagle, MTP or Lookahead"),
        ({"medusaChoices": [[0]]}, "is required: Medusa, Eagle, MTP or Lookahead; what is written belongs to Medusa"),
        ({"decodingType": "eagle"}, '"eagle" is not allowed: input should be Medusa, Eagle, MTP or Lookahead; did you'),
        ({"decodingType": "Eagle3"}, "did you mean Eagle?"),
        ({"decodingType": 3}, "3 is not allowed"),
    ],
)
def test_a_kind_of_speculation_that_is_not_said_rightly_is_asked_for(speculation: dict[str, Any], said: str) -> None:
    (problem,) = problems({"speculativeConfig": speculation}).values()

    assert problem.path == "spec.speculativeConfig.decodingType"
    assert said in str(problem)


def test_unknown_keys_are_told_also_where_the_kind_of_speculation_is_not_known() -> None:
    found = problems({"speculativeConfig": {"decodingType": "Egle", "maxDraftlen": 2, "zzz": 1}})

    assert set(found) == {"spec.speculativeConfig.decodingType", "spec.speculativeConfig.zzz"}


FACTS = list(iter_fields(LlmArgs))


def test_every_field_in_the_references_spelling_is_told_ours() -> None:
    for fact in FACTS:
        *above, alias = fact.path.split(".")
        if alias != fact.name:
            said = problems(beside(fact, fact.name))[".".join(("spec", *above, fact.name))].hint
            assert said == f"it is spelled {alias}: fields are in camelCase", fact


def test_every_field_at_the_top_is_told_its_section() -> None:
    for fact in FACTS:
        *above, alias = fact.path.split(".")
        if alias not in aliases(LLMDeploymentSpec):
            assert ".".join(("spec", *above)) in hint({alias: None}), fact


@pytest.mark.parametrize("spec", [{"kvCacheConfig": {}}, {"kv_cache_config": {}}, {"replicas": 1}])
def test_an_engine_says_what_belongs_in_a_deployment(spec: dict[str, Any]) -> None:
    (problem,) = an_engine(**spec).problems

    assert problem.hint == "it belongs in the LLMDeployment that serves the engine"


def test_the_section_of_a_deployment_is_the_top_of_an_engine() -> None:
    assert an_engine(engine={"toolchain": "torch"}).problems[0].hint == "what is in it stands directly in spec"
    assert a_deployment(toolchain="torch").problems[0].hint == "it belongs in spec.engine"


def test_every_other_name_leads_to_a_field() -> None:
    targets = {*MOVED.values(), *SIMILAR.values(), *(path for path, _ in IMPLIED.values())}

    assert {camel_path(path) for path in targets} - PATHS == set()


def test_every_other_word_leads_to_a_value() -> None:
    for path, words in SPELLINGS.items():
        parts = camel_path(path).split(".")
        if parts[-1] == "decodingType":
            continue
        allowed = closed_values(place(LLMDeploymentSpec, parts).annotation)
        assert set(filter(None, words.values())) <= set(allowed), path


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ({"dtype": "fp16"}, "float16"),
        ({"dtype": "BFloat16"}, "bfloat16"),
        ({"quantConfig": {"quantAlgo": "fp8"}}, "FP8"),
        ({"quantConfig": {"quantAlgo": "int4_awq"}}, "W4A16_AWQ"),
        ({"quantConfig": {"quantAlgo": "W4A16_AQW"}}, "W4A16_AWQ"),
        ({"schedulerConfig": {"capacitySchedulerPolicy": "max-utilization"}}, "MAX_UTILIZATION"),
        ({"backend": "_autodeploy"}, "autodeploy"),
        ({"buildConfig": {"pluginConfig": {"gemmPlugin": True}}}, "auto"),
        ({"buildConfig": {"pluginConfig": {"gemmPlugin": False}}}, "disable"),
        ({"buildConfig": {"pluginConfig": {"lowLatencyGemmPlugin": True}}}, "fp8"),
    ],
)
def test_a_value_of_a_closed_list_is_told_the_one_that_is_meant(spec: dict[str, Any], meant: str) -> None:
    (problem,) = problems(spec).values()

    assert problem.hint == f"did you mean {meant}?"


@pytest.mark.parametrize("spec", [{"dtype": "int8"}, {"dtype": 3}, {"loadFormat": "zzz"}])
def test_no_value_is_guessed_where_none_is_near(spec: dict[str, Any]) -> None:
    (problem,) = problems(spec).values()

    assert problem.hint is None
