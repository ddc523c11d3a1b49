"""Guided answers keep to their schema, whatever the model would rather say."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
import torch

from tests.unit.serve.doubles import DoubleRuntime, DoubleTokenizer, loaded
from tests.unit.serve.harness import MODEL, Server, serving
from trtllm_engine.serve.guide import Guide, SchemaError

CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "people": {"type": "integer"},
        "big": {"type": "boolean"},
    },
    "required": ["name", "people", "big"],
    "additionalProperties": False,
}


def noise(tokens: list[int]) -> torch.Tensor:
    """A model that says anything, but the same after the same tokens."""
    return torch.randn(256, generator=torch.Generator().manual_seed(hash(tuple(tokens)) % 2**31)) * 3


async def ask(server: Server, response_format: Any, **settings: Any) -> Any:
    return await server.client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "x"}],
        temperature=settings.pop("temperature", 0),
        response_format=response_format,
        **settings,
    )


def schema(content: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": content, **settings}}


async def test_an_answer_follows_its_schema_beside_answers_that_are_free() -> None:
    async with serving(loaded(DoubleRuntime(noise, slots=3, context=200))) as server:
        answer = await ask(server, schema(CITY), n=3, temperature=1, seed=5)
        free = await ask(server, {"type": "text"}, max_tokens=8)
    cities = [json.loads(choice.message.content) for choice in answer.choices if choice.finish_reason == "stop"]
    assert len(cities) == 3
    for city in cities:
        assert {name: type(value) for name, value in city.items()} == {"name": str, "people": int, "big": bool}
    assert len({city["name"] for city in cities}) == 3, "each answer has a grammar of its own"
    assert not free.choices[0].message.content.startswith("{")


async def test_json_object_is_an_object() -> None:
    def rather_not(tokens: list[int]) -> torch.Tensor:
        """Would say a list of everything; ends what may be ended."""
        logits = noise(tokens)
        logits[ord("[")] += 5
        logits[ord("}")] += 20
        return logits

    async with serving(loaded(DoubleRuntime(rather_not, context=200))) as server:
        answer = await ask(server, {"type": "json_object"})
    assert json.loads(answer.choices[0].message.content) == {}


async def test_a_schema_that_is_none_is_refused_with_the_reason() -> None:
    async with serving(loaded(DoubleRuntime(noise))) as server:
        with pytest.raises(openai.BadRequestError, match=r"response_format: .*nonsense") as refused:
            await ask(server, schema({"type": "nonsense"}))
        assert refused.value.param == "response_format"


def test_a_model_without_an_end_can_not_be_guided() -> None:
    with pytest.raises(SchemaError, match="no end-of-sequence token"):
        Guide(DoubleTokenizer(), 256, frozenset()).compile(CITY, strict=False)


def test_special_tokens_and_control_characters_are_never_part_of_an_answer() -> None:
    grammar = Guide(DoubleTokenizer(), 256, {0}).compile({"type": "string", "maxLength": 4}, strict=False)()
    grammar.accept(ord('"'))
    logits = torch.zeros(256)
    grammar.apply(logits)
    possible = {token for token in range(256) if logits[token] == 0}
    assert {ord("a"), ord('"')} <= possible
    assert not possible & {0, 1, *range(0x20)}
