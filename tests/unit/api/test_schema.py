"""Specs are read strictly, and every mistake is told at its field; statuses are read with patience."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_deployment, a_deployment_object, an_engine, an_engine_spec
from trtllm_operator.api.conditions import Reason
from trtllm_operator.api.deployment import LLMDeployment, LLMDeploymentSpec
from trtllm_operator.api.engine import LLMEngine
from trtllm_operator.api.problems import Refused
from trtllm_operator.api.schema import parse_spec


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({"tensorParalelSize": 2}, "spec.tensorParalelSize", "did you mean tensorParallelSize?"),
        ({"buildConfig": {"maxBatchsize": 2}}, "spec.buildConfig.maxBatchsize", "did you mean maxBatchSize?"),
        (
            {"engine": {"storage": {"zzz": 1}}},
            "spec.engine.storage.zzz",
            "known are accessModes, size, storageClassName",
        ),
        (
            {"buildConfig": {"maxBatchSize": "8"}},
            "spec.buildConfig.maxBatchSize",
            '"8" is not allowed: input should be a valid integer; remove the quotes',
        ),
        ({"buildConfig": {"maxBatchSize": "many"}}, "spec.buildConfig.maxBatchSize", "should be a valid integer"),
        ({"trustRemoteCode": "false"}, "spec.trustRemoteCode", "remove the quotes"),
        ({"kvCacheConfig": {"freeGpuMemoryFraction": "0.9"}}, "spec.kvCacheConfig.freeGpuMemoryFraction", "the quotes"),
        ({"revision": 1234567}, "spec.revision", "1234567 is not allowed: input should be a valid string; put it in"),
        ({"engine": {"target": {"computeCapability": 8.9}}}, "spec.engine.target.computeCapability", "in quotes"),
        (
            {"quantConfig": {"clampVal": [1.0]}},
            "spec.quantConfig.clampVal",
            "[1.0] is not allowed: list should have at least 2 items, not 1",
        ),
        ({"kvCacheConfig": {"maxAttentionWindow": [0]}}, "spec.kvCacheConfig.maxAttentionWindow[0]", "greater than or"),
        ({"buildConfig": {"maxBatchSize": 0}}, "spec.buildConfig.maxBatchSize", "greater than or equal to 1"),
        ({"engine": {"toolchain": "gcc"}}, "spec.engine.toolchain", "'tensorrt_rtx'"),
        ({"scheduling": {"tolerations": [{"kez": "a"}]}}, "spec.scheduling.tolerations[0].kez", "did you mean key?"),
        ({"dtype": "int8"}, "spec.dtype", '"int8" is not allowed'),
        ({"model": None}, "spec.model", "is required"),
    ],
)
def test_a_mistake_is_told_at_its_field(spec: dict[str, Any], path: str, said: str) -> None:
    deployment = a_deployment(**spec)

    assert deployment.spec is None
    (problem,) = deployment.problems
    assert (problem.path, problem.code) == (path, Reason.INVALID_SPEC)
    assert said in str(problem)


def test_all_mistakes_are_told_at_once() -> None:
    deployment = a_deployment(replicas=-1, dtype="int8", gpus=1)

    assert {problem.path for problem in deployment.problems} == {"spec.replicas", "spec.dtype", "spec.gpus"}


@pytest.mark.parametrize("spec", [None, [], "text", 3, {"model": {}}])
def test_an_object_is_always_readable(spec: Any) -> None:
    deployment = LLMDeployment.of({"metadata": {"name": "a"}, "spec": spec, "status": spec})

    assert deployment.spec is None and deployment.problems
    with pytest.raises(Refused):
        _ = deployment.valid_spec


def test_a_field_that_was_not_written_can_be_told_from_its_default() -> None:
    written, unwritten = a_deployment(dtype="auto").valid_spec, a_deployment(dtype=None).valid_spec

    assert (written.dtype, unwritten.dtype) == ("auto", None)


def test_a_number_is_a_quantity_too() -> None:
    assert a_deployment(engine={"resources": {"limits": {"cpu": 4}}}).valid_spec.engine.resources.limits == {"cpu": "4"}


def test_a_spec_is_written_as_it_was_read() -> None:
    spec = a_deployment_object(spec={"scheduling": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}})["spec"]

    assert LLMDeployment.of({"spec": spec}).valid_spec.to_json() == spec
    engine = an_engine_spec(retention="12h").to_json()
    assert parse_spec(type(an_engine_spec()), engine)[0] == an_engine_spec(retention="12h")


def test_a_status_of_another_version_costs_only_the_fields_that_it_wrote_differently() -> None:
    engine = an_engine(status={"percent": "half", "step": "weights", "novelty": 1, "model": {"facts": {}}})

    assert engine.status.step == "weights"
    assert engine.status.percent is None and engine.status.model is None


def test_zero_is_a_value_of_a_status() -> None:
    status = LLMDeployment.of(a_deployment_object(status={"replicas": 0, "readyReplicas": 0})).status

    assert status.to_json() == {"replicas": 0, "readyReplicas": 0}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(None, 604800), ("Keep", None), ("Delete", 0), ("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86400)],
)
def test_retention_reads_as_seconds(written: str | None, seconds: int | None) -> None:
    engine: LLMEngine = an_engine(retention=written)

    assert engine.valid_spec.retention_seconds(604800) == seconds


TEXT = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20)
VALID_SPECS = st.fixed_dictionaries(
    {"model": st.just("/models/a") | st.just("owner/name")},
    optional={
        "dtype": st.sampled_from(["auto", "float16", "bfloat16", "float32"]),
        "revision": TEXT,
        "replicas": st.integers(0, 1000),
        "suspend": st.booleans(),
        "tensorParallelSize": st.integers(1, 4096),
        "buildConfig": st.fixed_dictionaries({}, optional={"maxBatchSize": st.integers(1, 65536)}),
        "engine": st.fixed_dictionaries(
            {},
            optional={
                "toolchain": st.sampled_from(["torch", "tensorrt_rtx"]),
                "storage": st.fixed_dictionaries({"size": st.from_regex(r"[1-9][0-9]{0,3}(Gi|Mi)?", fullmatch=True)}),
                "retention": st.from_regex(r"Keep|Delete|[1-9][0-9]{0,3}[smhd]", fullmatch=True),
            },
        ),
        "serving": st.fixed_dictionaries(
            {}, optional={"port": st.integers(1024, 65535), "drainSeconds": st.integers(0, 60)}
        ),
        "scheduling": st.fixed_dictionaries({"nodeSelector": st.dictionaries(TEXT, TEXT, max_size=3)}),
    },
)


@given(VALID_SPECS)
def test_every_valid_spec_is_read_and_written_without_loss(written: dict[str, Any]) -> None:
    spec, problems = parse_spec(LLMDeploymentSpec, written)

    assert problems == () and spec is not None
    assert parse_spec(LLMDeploymentSpec, spec.to_json()) == (spec, ())
