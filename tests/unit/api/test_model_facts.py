"""The facts of the contract and those of the API are the same fields."""

import dataclasses

from tests.builders import VERSIONS, smollm2_facts
from trtllm_engine.contract import ModelFacts
from trtllm_operator.api.model_facts import ModelFactsShape, ModelStatus


def test_the_two_shapes_have_the_same_fields() -> None:
    assert list(ModelFactsShape.model_fields) == [field.name for field in dataclasses.fields(ModelFacts)]


def test_facts_survive_the_status() -> None:
    status = ModelStatus(source="abc", facts=smollm2_facts(commit="c0ffee"), versions=VERSIONS)

    assert ModelStatus.model_validate(status.to_json()) == status
    assert status.facts.num_attention_heads == 9
