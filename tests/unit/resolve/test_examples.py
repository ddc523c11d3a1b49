"""The examples are valid and resolve for the model that they name; manifests mean what a reader expects."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import HUB, VERSIONS, a_deployment_spec, an_engine_spec, smollm2_facts, some_defaults
from tests.unit.resolve.cases import H100, a_node, for_engine, found, llama_8b, others, refused
from trtllm_operator.api.deployment import LLMDeployment
from trtllm_operator.api.engine import LLMEngine
from trtllm_operator.resolve.defaults import Defaults
from trtllm_operator.resolve.examination import Examination, examine
from trtllm_operator.resolve.resolution import resolve
from trtllm_operator.resolve.review import review
from trtllm_operator.resolve.rules.case import Case

Json = dict[str, Any]

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("smollm2*.yaml"))
LLAMA_70B: Json = {
    "model": "meta-llama/Llama-3.3-70B-Instruct",
    "revision": "6f6073b423013f6a7d4d9f39144961bfbfbc386b",
    "hubTokenSecretRef": {"name": "hf", "key": "token"},
    "tensorParallelSize": 8,
    "quantConfig": {"quantAlgo": "FP8", "kvCacheQuantAlgo": "FP8"},
    "kvCacheConfig": {"freeGpuMemoryFraction": 0.9},
    "enableChunkedPrefill": True,
    "buildConfig": {
        "maxBatchSize": 256,
        "maxNumTokens": 8192,
        "maxSeqLen": 8192,
        "pluginConfig": {"usePagedContextFmha": True},
    },
    "engine": {"toolchain": "tensorrt_llm", "target": {"gpuProduct": H100}},
    "replicas": 2,
}
LLAMA_405B: Json = {
    "model": "meta-llama/Llama-3.1-405B-Instruct-FP8",
    "tensorParallelSize": 8,
    "pipelineParallelSize": 2,
    "gpusPerNode": 8,
}
DEEPSEEK: Json = {
    "model": "deepseek-ai/DeepSeek-V3",
    "backend": "pytorch",
    "tensorParallelSize": 8,
    "moeExpertParallelSize": 8,
    "enableAttentionDp": True,
    "speculativeConfig": {"decodingType": "MTP", "numNextnPredictLayers": 1},
}


def written(spec: Json, facts: Any = None, nodes: Any = None) -> Examination:
    """Of a manifest with nothing but `spec` in it."""
    deployment = LLMDeployment.of({"kind": LLMDeployment.KIND, "metadata": {"name": "x"}, "spec": spec})
    return examine(Case.of(deployment.valid_spec, some_defaults(), facts, nodes))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_works_as_installed(file: Path) -> None:
    obj = yaml.safe_load(file.read_text())
    spec = LLMEngine.of(obj).valid_spec if obj["kind"] == LLMEngine.KIND else LLMDeployment.of(obj).valid_spec

    resolution = resolve(spec, smollm2_facts(), VERSIONS, Defaults())
    assert resolution.adjustments == ()


@pytest.mark.parametrize("facts", [None, smollm2_facts(), llama_8b()])
@pytest.mark.parametrize("nodes", [None, [], [a_node()]])
def test_a_spec_of_just_a_model_works(facts: Any, nodes: Any) -> None:
    result = written({"model": HUB["model"]}, facts, nodes)
    assert (result.problems, result.cautions[:0]) == ((), ())


def test_the_minimal_one_fits_an_80_gb_gpu_without_a_word_from_the_user() -> None:
    spec = a_deployment_spec(model="meta-llama/Llama-3.1-8B-Instruct", modelVolume=None, dtype=None, buildConfig=None)

    result = review(spec, some_defaults(), llama_8b(), [a_node(memory=80 * 10**9)])
    assert (result.problems, result.cautions) == ((), ())
    assert result.memory is not None and result.memory.fits
    assert result.resolved is not None
    assert result.resolved["buildConfig"] == {"maxBatchSize": 49, "maxInputLen": 8192, "maxSeqLen": 8192}


def test_a_deployment_on_a_cpu_works() -> None:
    result = written(
        {"model": HUB["model"], "serving": {"device": "cpu"}, "engine": {"toolchain": "torch"}}, llama_8b(), []
    )
    assert (result.problems, result.cautions) == ((), ())


def test_eight_gpus_with_fp8_wait_for_their_toolchain_and_for_nothing_else() -> None:
    result = written(LLAMA_70B, None, [a_node()])

    assert {problem.rule for problem in result.problems} == {"CAP-1"}
    assert (result.adjustments, result.cautions) == ((), ())


def test_two_nodes_per_replica_are_a_plan() -> None:
    result = written(LLAMA_405B, None, [a_node(), a_node("gpu-b")])

    assert (result.problems, result.cautions) == ((), ())


def test_the_pytorch_backend_waits_for_its_version_and_for_nothing_else() -> None:
    result = written(DEEPSEEK)

    assert {problem.rule for problem in result.problems} == {"CAP-1"}
    assert (others(result), result.cautions) == ([], ())


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({"tensorParallelSize": 2}, "spec.tensorParallelSize", "9 attention heads"),
        (
            {"engine": {"toolchain": "tensorrt_rtx"}, "speculativeConfig": {"decodingType": "Medusa"}},
            "spec.speculativeConfig.decodingType",
            "tensorrt_llm will be able to, in a later version",
        ),
        ({"tensorParallelSize": 9, "gpusPerNode": 8}, "spec.tensorParallelSize", "8, 10, 12"),
        ({"model": "../../etc"}, "spec.model", "no path below /models/"),
    ],
)
def test_what_must_be_refused_is_refused_at_its_field(spec: Json, path: str, said: str) -> None:
    problems = [p for p in found(spec, smollm2_facts()).problems if p.path == path and said in str(p)]
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({"tensorParalelSize": 2}, "spec.tensorParalelSize", "did you mean tensorParallelSize?"),
        ({"kvCacheConfig": {"freeGpuMemoryFraction": 1.2}}, "spec.kvCacheConfig.freeGpuMemoryFraction", "below 1"),
    ],
)
def test_what_the_schema_refuses_is_refused_at_its_field(spec: Json, path: str, said: str) -> None:
    obj = {"kind": LLMDeployment.KIND, "metadata": {"name": "x"}, "spec": {"model": HUB["model"], **spec}}
    (problem,) = LLMDeployment.of(obj).problems
    assert problem.path == path
    assert said in str(problem)


def test_bfloat16_for_an_old_gpu_is_refused_at_the_dtype() -> None:
    result = examine(Case.of(an_engine_spec(target={"computeCapability": "7.5"}), some_defaults()))
    assert [problem.path for problem in result.problems] == ["spec.dtype"]


def test_fp8_of_an_engine_without_it_is_refused_at_the_algorithm() -> None:
    spec = for_engine(quantConfig={"quantAlgo": "FP8"})
    assert refused("ENG-2", found(spec, smollm2_facts(format="trtllm_engine"))).path == "spec.quantConfig.quantAlgo"


@pytest.mark.parametrize(
    "spec",
    [
        {"quantConfig": {"quantAlgo": "FP8"}},
        {"maxBeamWidth": 4},
        {
            "buildConfig": {"pluginConfig": {"streamingllm": True}},
            "kvCacheConfig": {"maxAttentionWindow": [2048], "sinkTokenLength": 4},
        },
    ],
)
def test_what_must_work_with_an_adjustment_does(spec: Json) -> None:
    result = found(for_engine(**spec))

    assert others(result) == []
    assert result.adjustments
