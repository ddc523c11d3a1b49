"""The official client gets what OpenAI's API promises, streamed and whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from openai.types.chat import ChatCompletionContentPartTextParam, ChatCompletionMessageParam

from tests.unit.serve.doubles import DoubleRuntime, endless, loaded, saying
from tests.unit.serve.harness import MODEL, Server, serving
from trtllm_engine.serve.openai_api import ChatMessage


@pytest.fixture
async def hello() -> AsyncIterator[Server]:
    async with serving(loaded(DoubleRuntime(saying("Héllo 🙂!")))) as server:
        yield server


@pytest.fixture
async def alphabet() -> AsyncIterator[Server]:
    """Answers `...abc...` without end, in a context of 64 tokens."""
    async with serving(loaded(DoubleRuntime(endless))) as server:
        yield server


async def test_a_chat_answer_carries_text_reason_and_usage(hello: Server) -> None:
    answer = await hello.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == MODEL
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "Héllo 🙂!"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    prompt = len(b"user: Hi\nassistant: ") + 1
    answered = len("Héllo 🙂!".encode()) + 1
    assert answer.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": prompt,
        "completion_tokens": answered,
        "total_tokens": prompt + answered,
    }


async def test_an_answer_says_what_computed_it(hello: Server) -> None:
    raw = await hello.client.completions.with_raw_response.create(model=MODEL, prompt="Hi")
    assert raw.headers["x-trtllm-device"] == "cpu"
    assert raw.parse().system_fingerprint == "trtllm-engine-0.1.0-torch-cpu"


async def test_a_streamed_chat_opens_with_the_role_and_ends_with_the_reason(hello: Server) -> None:
    stream = await hello.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert texts == ["", "H", "é", "l", "l", "o", " ", "🙂", "!", ""], "whole characters only"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 9 + ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


async def test_a_stream_ends_with_usage_when_asked_and_then_with_done(hello: Server) -> None:
    request = {"model": MODEL, "prompt": "Hi", "stream": True, "stream_options": {"include_usage": True}}
    async with hello.http.stream("POST", "/v1/completions", json=request) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        lines = [line async for line in response.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert '"choices":[]' in lines[-2]
    assert '"usage":{"prompt_tokens":3,"completion_tokens":13,"total_tokens":16}' in lines[-2]
    assert all('"usage":null' in line for line in lines[:-2])


async def test_a_completion_takes_text_a_list_with_one_text_and_tokens(hello: Server) -> None:
    for prompt in ("Hi", ["Hi"], [*b"Hi", 1]):
        answer = await hello.client.completions.create(model=MODEL, prompt=prompt, max_tokens=5)
        assert answer.object == "text_completion"
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Héll", "length")


async def test_a_completion_without_max_tokens_has_openai_s_sixteen(alphabet: Server) -> None:
    answer = await alphabet.client.completions.create(model=MODEL, prompt="x")
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (16, "length")


async def test_an_answer_ends_where_the_context_does(alphabet: Server) -> None:
    for wanted in (None, 1000):
        answer = await alphabet.client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "x"}], max_completion_tokens=wanted
        )
        assert answer.usage is not None
        assert (answer.usage.total_tokens, answer.choices[0].finish_reason) == (64, "length")


async def test_a_stop_string_ends_the_answer_before_it_also_when_streamed(alphabet: Server) -> None:
    stops = ["zzz", "hij"]
    create = alphabet.client.completions.create
    whole = await create(model=MODEL, prompt="x", max_tokens=60, stop=stops)
    stream = await create(model=MODEL, prompt="x", max_tokens=60, stop=stops, stream=True)
    streamed = "".join([chunk.choices[0].text async for chunk in stream])
    assert whole.choices[0].text == streamed == "cdefg"
    assert whole.choices[0].finish_reason == "stop"
    await alphabet.settled()


async def test_tools_reach_the_chat_template_unless_tool_choice_is_none(hello: Server) -> None:
    tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
    prompts = []
    for settings in ({}, {"tools": [tool]}, {"tools": [tool], "tool_choice": "none"}):
        answer = await hello.client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], **settings
        )
        assert answer.usage is not None
        prompts.append(answer.usage.prompt_tokens)
    assert prompts == [prompts[0], prompts[0] + len("tools: 1\n"), prompts[0]]


async def test_text_parts_are_joined_and_developer_is_system(alphabet: Server) -> None:
    parts: list[ChatCompletionContentPartTextParam] = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "ab"},
        {"role": "developer", "content": parts},
    ]
    system, developer = [
        await alphabet.client.chat.completions.create(model=MODEL, messages=[message], max_tokens=3)
        for message in messages
    ]
    assert system.choices == developer.choices
    assert system.usage == developer.usage


async def test_models_lists_the_one_model_with_its_context(hello: Server) -> None:
    (model,) = (await hello.client.models.list()).data
    assert (model.id, model.owned_by) == (MODEL, "trtllm-operator")
    assert model.model_dump()["max_model_len"] == 64
    assert (await hello.client.models.retrieve(MODEL)).id == MODEL


async def test_seeds_reproduce_and_no_seed_varies() -> None:
    def uncertain(tokens: list[int]) -> int:
        return ord("a")

    runtime = DoubleRuntime(uncertain, context=128, certainty=0.0)
    async with serving(loaded(runtime)) as server:

        async def text(seed: int | None) -> str:
            answer = await server.client.completions.create(model=MODEL, prompt="x", max_tokens=20, seed=seed)
            return answer.choices[0].text

        same = await asyncio.gather(*[text(7) for _ in range(6)])
        assert len(set(same)) == 1, "also when computed beside others"
        assert len({await text(8), await text(9), await text(None), await text(None), same[0]}) == 5


BAD = [
    pytest.param({"temperature": 3}, "temperature", "should be less than or equal to 2, got 3", id="range"),
    pytest.param({"top_p": 0}, "top_p", "top_p: Input should be greater than 0, got 0", id="top_p"),
    pytest.param({"max_tokens": 0}, "max_tokens", "should be greater than or equal to 1, got 0", id="none"),
    pytest.param({"n": 2}, "n", "n: not supported by this server; leave it out or send 1, got 2", id="n"),
    pytest.param({"frequency_penalty": 0.5}, "frequency_penalty", "leave it out or send 0, got 0.5", id="penalty"),
    pytest.param({"logprobs": True}, "logprobs", "leave it out or send false, got True", id="logprobs"),
    pytest.param({"logit_bias": {"1": 2}}, "logit_bias", "not supported by this server", id="bias"),
    pytest.param({"response_format": {"type": "json_object"}}, "response_format.type", "send 'text'", id="format"),
    pytest.param({"tool_choice": "required"}, "tool_choice", "'auto' or 'none'", id="tool_choice"),
    pytest.param({"temprature": 1}, "temprature", "temprature: unknown field", id="unknown"),
    pytest.param({"stop": list("abcde")}, "stop", "at most 4", id="stops"),
    pytest.param({"stream_options": {"include_usage": True}}, None, "only allowed together with stream", id="options"),
    pytest.param({"messages": []}, "messages", "at least 1 item", id="empty"),
    pytest.param({"messages": None}, "messages", "messages: ", id="null"),
    pytest.param({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "'user'", id="role"),
    pytest.param(
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0].type",
        "Input should be 'text', got 'image_url'",
        id="image",
    ),
    pytest.param({"messages": [{"role": "user"}]}, "messages[0]", "content: required", id="content"),
    pytest.param({"messages": [{"role": "user", "content": "x" * 80}]}, "messages", "at most 63 in a", id="long"),
]


@pytest.mark.parametrize(("change", "param", "message"), BAD)
async def test_a_bad_request_is_refused_with_its_field_and_the_reason(
    hello: Server, change: dict[str, object], param: str | None, message: str
) -> None:
    request = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]} | change
    response = await hello.http.post("/v1/chat/completions", json=request)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert message in error["message"]


async def test_the_client_raises_its_own_errors(hello: Server) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await hello.client.completions.create(model="gpt-9", prompt="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        await hello.client.completions.create(model=MODEL, prompt="x" * 64)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match=r"token ids must be in \[0, 256\)"):
        await hello.client.completions.create(model=MODEL, prompt=[1, 256])
    with pytest.raises(openai.BadRequestError, match="prompt: empty"):
        await hello.client.completions.create(model=MODEL, prompt=[])


async def test_what_is_no_json_or_no_endpoint_has_openai_s_shape_too(hello: Server) -> None:
    broken = await hello.http.post("/v1/completions", content=b"{", headers={"content-type": "application/json"})
    assert (broken.status_code, broken.json()["error"]["type"]) == (400, "invalid_request_error")
    missing = await hello.http.get("/v1/embeddings")
    assert (missing.status_code, missing.json()["error"]["message"]) == (404, "Not Found")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (r'{"model": "tiny", "prompt": "\ud800"}', "prompt"),
        ('{"model": "tiny", "prompt": "x", "temperature": NaN}', "temperature"),
        ('{"model": "tiny", "prompt": "x", "top_p": Infinity}', "top_p"),
        ("[" * 100_000, None),
        ("5", None),
    ],
)
async def test_odd_json_is_refused_and_harms_nothing(hello: Server, body: str, param: str | None) -> None:
    response = await hello.http.post(
        "/v1/completions", content=body.encode(), headers={"content-type": "application/json"}
    )
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert (await hello.http.get("/livez")).status_code == 200


async def test_the_api_describes_itself(hello: Server) -> None:
    paths = (await hello.http.get("/openapi.json")).json()["paths"]
    assert {"/v1/completions", "/v1/chat/completions", "/v1/models", "/readyz"} <= set(paths)


def test_tool_calls_reach_the_template_as_objects() -> None:
    message = ChatMessage.model_validate(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "add", "arguments": '{"a": 1}'}}],
        }
    )
    assert message.for_template() == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}],
    }


async def test_a_body_beyond_the_limit_is_refused(hello: Server) -> None:
    response = await hello.http.post("/v1/completions", json={"model": MODEL, "prompt": "x" * (9 << 20)})
    assert (response.status_code, "larger than 8388608 bytes" in response.json()["error"]["message"]) == (413, True)


async def test_a_model_without_chat_template_says_so() -> None:
    async with serving(loaded(DoubleRuntime(saying("x")), chat_template=False)) as server:
        with pytest.raises(openai.BadRequestError, match="no chat template"):
            await server.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
