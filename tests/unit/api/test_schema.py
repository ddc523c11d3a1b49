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
from trtllm_operator.api.quantity import amount
from trtllm_operator.api.schema import parse_spec


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({"tensorParalelSize": 2}, "spec.tensorParalelSize", "did you mean tensorParallelSize?"),
        ({"buildConfig": {"optNumtokens": 2}}, "spec.buildConfig.optNumtokens", "did you mean optNumTokens?"),
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
        (
            {"kvCacheConfig": {"maxAttentionWindow": [0]}},
            "spec.kvCacheConfig.maxAttentionWindow[0]",
            "must be at least 1",
        ),
        (
            {"buildConfig": {"maxBatchSize": 0}},
            "spec.buildConfig.maxBatchSize",
            "it must be at least 1 and at most 65536",
        ),
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


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        (
            {"kvCacheConfig": {"freeGpuMemoryFraction": 1.5}},
            "spec.kvCacheConfig.freeGpuMemoryFraction",
            "above 0 and below 1",
        ),
        (
            {"serving": {"port": 80}},
            "spec.serving.port",
            "80 is not allowed: it must be at least 1024 and at most 65535",
        ),
        ({"replicas": -1}, "spec.replicas", "it must be at least 0 and at most 1000"),
        ({"iterStatsMaxIterations": -1}, "spec.iterStatsMaxIterations", "it must be at least 0 and at most"),
        (
            {"maxBeamWidth": 10**3000},
            "spec.maxBeamWidth",
            "0... is not allowed: it must be at least 1 and at most 1024",
        ),
        ({"replicas": 10**5000}, "spec.replicas", "is a number of thousands of digits"),
    ],
)
def test_a_range_is_told_with_both_ends_and_no_message_is_endless(spec: dict[str, Any], path: str, said: str) -> None:
    (problem,) = a_deployment(**spec).problems

    assert problem.path == path
    assert said in problem.message and len(problem.message) < 200


@pytest.mark.parametrize(
    ("spec", "path", "hint"),
    [
        ({"hubTokenSecretRef": {"name": "a"}}, "hubTokenSecretRef.key", "write it: key in the Secret's data"),
        (
            {"engine": {"resources": {"limits": {"cpu": "3x"}}}},
            "engine.resources.limits.cpu",
            "write for example 2, 1.5, 500m",
        ),
        ({"engine": {"resources": {"limits": {"cpu": 1.5}}}}, "engine.resources.limits.cpu", "put it in quotes"),
        ({"strategy": {"type": "Recreate", "maxSurge": 1}}, "strategy.maxSurge", "remove it"),
        ({"strategy": {"maxSurge": 0, "maxUnavailable": "0%"}}, "strategy.maxUnavailable", "set one of the two to 1"),
    ],
)
def test_a_mistake_comes_with_what_to_write(spec: dict[str, Any], path: str, hint: str) -> None:
    (problem,) = a_deployment(**spec).problems

    assert problem.path == f"spec.{path}"
    assert (problem.hint or "").startswith(hint)
    assert "{" not in problem.message, "a section is not shown as a whole"


@pytest.mark.parametrize(
    ("empty", "hint"),
    [
        ("kvCacheConfig", "it is empty: indent the lines below it, or remove it"),
        ("buildConfig", "it is empty: indent the lines below it, or remove it"),
        ("replicas", "give it a value, or remove it"),
    ],
)
def test_an_empty_line_is_told_what_it_lacks(empty: str, hint: str) -> None:
    problems = parse_spec(LLMDeploymentSpec, {"model": "owner/name", empty: None})[1]

    assert [(problem.path, problem.hint) for problem in problems if problem.path == f"spec.{empty}"] == [
        (f"spec.{empty}", hint)
    ]


def test_fields_that_exclude_each_other_are_each_told() -> None:
    found = a_deployment(strategy={"type": "Recreate", "maxSurge": 1, "maxUnavailable": 1}).problems

    assert [problem.path for problem in found] == ["spec.strategy.maxSurge", "spec.strategy.maxUnavailable"]


@pytest.mark.parametrize(
    ("quantity", "number"),
    [("2", 2), ("1.5", 1.5), ("500m", 0.5), ("1k", 1000), ("2G", 2e9), ("2Gi", 2**31), ("1Ei", 2**60)],
)
def test_a_quantity_stands_for_a_number(quantity: str, number: float) -> None:
    found = amount(quantity)
    assert found is not None and float(found) == number


@pytest.mark.parametrize("text", ["", "?", "3x", "-1", "1e3", "Gi"])
def test_what_is_no_quantity_stands_for_no_number(text: str) -> None:
    assert amount(text) is None


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
