"""What the webhook answers; that a real API server understands it stands in tests/apiserver/test_admission.py."""

from __future__ import annotations

from typing import Any

from tests.builders import Json, a_deployment_object, an_engine_object, merged, smollm2_facts
from trtllm_operator.api.deployment import LLMDeployment
from trtllm_operator.cluster.admission import WARNINGS_LIMIT, answer_of, warnings
from trtllm_operator.resolve.defaults import Defaults
from trtllm_operator.resolve.source import source_hash


def answer(obj: Json, old: Json | None = None) -> Json:
    return answer_of({"object": obj, "oldObject": old}, Defaults())


def causes(answer: Json) -> list[str]:
    return [cause["field"] for cause in answer["status"]["details"]["causes"]]


def with_facts(obj: Json) -> Json:
    """The object after its model was inspected."""
    spec = LLMDeployment.of(obj).valid_spec
    model = {"source": source_hash(spec, Defaults()), "facts": smollm2_facts().to_dict(), "versions": {}}
    return {**obj, "status": {"model": model}}


def test_a_good_spec_passes() -> None:
    for obj in (a_deployment_object(), an_engine_object()):
        assert answer(obj)["allowed"]


def test_every_problem_is_a_cause_at_its_field() -> None:
    said = answer(a_deployment_object(spec={"modelVolume": None, "engine": {"toolchain": "tensorrt_llm"}}))
    assert not said["allowed"]
    assert causes(said) == ["spec.modelVolume", "spec.engine.toolchain"]
    assert said["status"]["code"] == 422
    assert "spec.modelVolume: is required" in said["status"]["message"]


def test_what_only_a_lenient_client_can_send_is_refused_with_the_nearest_name() -> None:
    obj = a_deployment_object()
    obj["spec"]["tensorParalelSize"] = 2
    said = answer(obj)
    assert causes(said) == ["spec.tensorParalelSize"]
    assert "did you mean tensorParallelSize" in said["status"]["message"]


def test_an_object_that_became_invalid_can_still_be_labelled_and_deleted() -> None:
    bad = a_deployment_object(spec={"modelVolume": None})
    labelled: dict[str, Any] = merged(bad, {"metadata": {"labels": {"team": "a"}}})
    assert answer(labelled, bad)["allowed"]
    leaving = merged(bad, {"metadata": {"deletionTimestamp": "2026-01-02T14:03:00Z"}, "spec": {"replicas": 5}})
    assert answer(leaving, bad)["allowed"]


def test_facts_that_are_known_already_are_used_at_once() -> None:
    """A change to a length that the model does not have is refused, where a new object would be accepted first."""
    old = with_facts(a_deployment_object())
    changed = merged(old, {"spec": {"buildConfig": {"maxSeqLen": 1_000_000}}})
    assert causes(answer(changed, old)) == ["spec.buildConfig.maxSeqLen"]
    assert answer(changed)["allowed"]


def test_warnings_never_exceed_what_the_api_server_passes_on() -> None:
    assert warnings(["short"]) == ["short"]
    many = warnings(["x" * 300] * 40)
    assert sum(map(len, many)) <= WARNINGS_LIMIT
    assert many[-1] == f"{40 - len(many) + 1} more; see status.adjustments"
