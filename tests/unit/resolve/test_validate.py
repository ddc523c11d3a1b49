"""What must be refused is refused at its field, with what is allowed instead; and nothing else is."""

from typing import Any

import pytest

from tests.builders import DIGEST, HUB, a_deployment_spec, an_engine_spec, smollm2_facts, some_defaults
from trtllm_engine.contract import Toolchain
from trtllm_operator.api.conditions import Reason
from trtllm_operator.api.problems import Problem
from trtllm_operator.resolve.validate import check_facts, check_spec

GPU_LIMIT = {"limits": {"nvidia.com/gpu": 1}}


def only(problems: list[Problem]) -> Problem:
    (problem,) = problems
    return problem


@pytest.mark.parametrize(
    "spec",
    [
        {},
        HUB,
        {"serving": {"device": "cpu"}},
        {"tensorParallelSize": 1, "gpusPerNode": 8},
        {"podTemplate": {"labels": {"team": "search"}}},
    ],
)
def test_what_works_is_not_refused(spec: dict[str, Any]) -> None:
    assert check_spec(a_deployment_spec(**spec), some_defaults()) == []


def test_just_a_model_is_enough() -> None:
    assert check_spec(a_deployment_spec(**HUB, engine=None, dtype=None, buildConfig=None), some_defaults()) == []


@pytest.mark.parametrize(
    ("spec", "path", "code", "said"),
    [
        ({"trustRemoteCode": True}, "spec.trustRemoteCode", Reason.INVALID_SPEC, "never run"),
        ({"modelVolume": {"readOnly": False}}, "spec.modelVolume.readOnly", Reason.INVALID_SPEC, "read-only"),
        (
            {"tensorParallelSize": 9, "gpusPerNode": 8},
            "spec.tensorParallelSize",
            Reason.INVALID_SPEC,
            "9 ranks do not divide evenly over nodes of 8 GPUs; the nearest numbers of ranks that do are 8, 10, 12",
        ),
        (
            {"tensorParallelSize": 12, "gpusPerNode": 8},
            "spec.tensorParallelSize",
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "one rank works in this version",
        ),
        (
            {"pipelineParallelSize": 2},
            "spec.pipelineParallelSize",
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "1 tensor x 2 pipeline",
        ),
        (
            {"engine": {"toolchain": "tensorrt_llm"}},
            "spec.engine.toolchain",
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "later version",
        ),
        (
            {"engine": {"toolchain": "tensorrt_rtx"}},
            "spec.engine.toolchain",
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "built in this version (as an LLMEngine), and not served; set it to torch",
        ),
        (
            {"serving": {"resources": GPU_LIMIT}},
            "spec.serving.resources.limits[nvidia.com/gpu]",
            Reason.INVALID_SPEC,
            "mapping",
        ),
        (
            {"engine": {"resources": GPU_LIMIT}},
            "spec.engine.resources.limits[nvidia.com/gpu]",
            Reason.INVALID_SPEC,
            "mapping",
        ),
        (
            {"gpu": {"resourceName": "amd.com/gpu"}, "serving": {"resources": {"limits": {"amd.com/gpu": 1}}}},
            "spec.serving.resources.limits[amd.com/gpu]",
            Reason.INVALID_SPEC,
            "mapping",
        ),
        (
            {"podTemplate": {"labels": {"inference.trtllm-operator.dev/ordinal": "7"}}},
            "spec.podTemplate.labels[inference.trtllm-operator.dev/ordinal]",
            Reason.INVALID_SPEC,
            "operator's own key",
        ),
    ],
)
def test_a_rule_that_is_broken_is_told_at_its_field(spec: dict[str, Any], path: str, code: Reason, said: str) -> None:
    problem = only(check_spec(a_deployment_spec(**spec), some_defaults()))

    assert (problem.path, problem.code) == (path, code)
    assert said in str(problem)


@pytest.mark.parametrize(
    ("spec", "path", "code", "said"),
    [
        ({"target": None}, "spec.target.computeCapability", Reason.AMBIGUOUS_GPU, "7.5, 8.0, 8.6, 8.9, 12.0, 12.1"),
        (
            {"target": {"computeCapability": "9.0"}},
            "spec.target.computeCapability",
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            '"9.0" is not possible with toolchain tensorrt_rtx, which builds for 7.5, 8.0, 8.6, 8.9, 12.0, 12.1; '
            "tensorrt can",
        ),
        (
            {"target": {"computeCapability": "3.5"}},
            "spec.target.computeCapability",
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "no toolchain builds for it",
        ),
        (
            {"target": {"computeCapability": "7.5"}},
            "spec.dtype",
            Reason.UNSUPPORTED_BY_TOOLCHAIN,
            "bfloat16 is not possible for compute capability 7.5",
        ),
        ({"toolchain": "tensorrt_llm"}, "spec.toolchain", Reason.UNSUPPORTED_BY_TOOLCHAIN, "later version"),
    ],
)
def test_an_engine_is_for_a_gpu_that_its_toolchain_knows(
    spec: dict[str, Any], path: str, code: Reason, said: str
) -> None:
    problem = only(check_spec(an_engine_spec(**spec), some_defaults()))

    assert (problem.path, problem.code) == (path, code)
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
def test_an_engine_that_can_be_built_is_not_refused(spec: dict[str, Any]) -> None:
    assert check_spec(an_engine_spec(**spec), some_defaults()) == []


def test_a_cpu_serves_only_what_runs_on_it() -> None:
    rtx = {"toolchain": "tensorrt_rtx", "target": {"computeCapability": "8.9"}}
    spec = a_deployment_spec(engine=rtx, serving={"device": "cpu"})

    paths = [problem.path for problem in check_spec(spec, some_defaults())]
    assert paths == ["spec.engine.toolchain", "spec.serving.device"]


def test_a_default_that_does_not_work_is_said_to_be_the_operators() -> None:
    problem = only(check_spec(a_deployment_spec(engine=None), some_defaults(toolchain=Toolchain.TENSORRT)))

    assert problem.path == "spec.engine.toolchain"
    assert "tensorrt (the operator's default)" in problem.message


@pytest.mark.parametrize(
    ("spec", "facts", "path", "code", "said"),
    [
        (
            {"tensorParallelSize": 2},
            {},
            "spec.tensorParallelSize",
            Reason.MODEL_MISMATCH,
            "9 attention heads of /models/SmolLM2-135M-Instruct do not divide by 2; possible are 1, 3, 9",
        ),
        ({"pipelineParallelSize": 31}, {}, "spec.pipelineParallelSize", Reason.MODEL_MISMATCH, "use at most 30"),
        (
            {"buildConfig": {"maxSeqLen": 8193}},
            {},
            "spec.buildConfig.maxSeqLen",
            Reason.MODEL_MISMATCH,
            "use at most 8192",
        ),
        (
            {"buildConfig": {"maxInputLen": 9000}},
            {},
            "spec.buildConfig.maxInputLen",
            Reason.MODEL_MISMATCH,
            "9000 tokens",
        ),
        ({}, {"quantization": "fp8"}, "spec.model", Reason.UNSUPPORTED_BY_TOOLCHAIN, "quantised (fp8)"),
        ({}, {"family": None, "architecture": "Mamba"}, "spec.model", Reason.UNSUPPORTED_BY_TOOLCHAIN, "Mamba"),
        ({}, {"format": "trtllm_engine"}, "spec.model", Reason.UNSUPPORTED_BY_TOOLCHAIN, "trtllm_engine"),
    ],
)
def test_a_model_that_does_not_fit_is_told_with_its_numbers(
    spec: dict[str, Any], facts: dict[str, Any], path: str, code: Reason, said: str
) -> None:
    problem = only(check_facts(a_deployment_spec(**spec), smollm2_facts(**facts)))

    assert (problem.path, problem.code) == (path, code)
    assert said in str(problem)


def test_a_pinned_model_must_be_that_model() -> None:
    assert check_facts(an_engine_spec(modelDigest=DIGEST), smollm2_facts()) == []
    assert check_facts(an_engine_spec(modelDigest=DIGEST.removeprefix("sha256:")), smollm2_facts()) == []

    problem = only(check_facts(an_engine_spec(modelDigest="0" * 64), smollm2_facts()))
    assert (problem.path, problem.code) == ("spec.modelDigest", Reason.MODEL_MISMATCH)
