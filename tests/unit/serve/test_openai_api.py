"""The official client gets what OpenAI's API promises, streamed and whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import torch
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


async def test_an_answer_without_limit_ends_where_the_context_does(alphabet: Server) -> None:
    answer = await alphabet.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}])
    assert answer.usage is not None
    assert (answer.usage.total_tokens, answer.choices[0].finish_reason) == (64, "length")


async def test_more_tokens_than_the_context_leaves_are_refused_with_the_numbers(alphabet: Server) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        response = await alphabet.http.post(
            "/v1/chat/completions", json={"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], name: 1000}
        )
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
        assert "1000, but the prompt leaves 43 tokens" in error["message"]


async def test_a_request_not_declared_as_json_is_told_so(hello: Server) -> None:
    body = b'{"model": "tiny", "prompt": "x"}'
    for headers, found in (({}, "it is missing"), ({"content-type": "text/plain"}, "got 'text/plain'")):
        response = await hello.http.post("/v1/completions", content=body, headers=headers)
        assert response.status_code == 400
        assert response.json()["error"]["message"] == f"the header content-type must be application/json; {found}"


async def test_several_prompts_and_several_answers_to_each_are_numbered_by_prompt_first(alphabet: Server) -> None:
    answer = await alphabet.client.completions.create(model=MODEL, prompt=["x", "xx"], n=2, max_tokens=3, temperature=0)
    assert [(c.index, c.text) for c in answer.choices] == [(0, "cde"), (1, "cde"), (2, "def"), (3, "def")]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2 + 3, 12)


async def test_several_answers_stream_side_by_side(alphabet: Server) -> None:
    stream = await alphabet.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "x"}], n=3, max_tokens=4, stream=True
    )
    texts, reasons = ["", "", ""], {}
    async for chunk in stream:
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        if choice.finish_reason:
            reasons[choice.index] = choice.finish_reason
    assert len(set(texts)) == 1
    assert len(texts[0]) == 4
    assert reasons == dict.fromkeys(range(3), "length")


async def test_more_answers_than_can_ever_be_live_are_refused_and_told_how_many(alphabet: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="72 answers in one request, but this server takes at most 68"):
        await alphabet.client.completions.create(model=MODEL, prompt=["x", "y"], n=36)


def falling(tokens: list[int]) -> torch.Tensor:
    """Logits of which the first letters are the likeliest, the earlier the more."""
    logits = torch.full((256,), -100.0)
    logits[ord("a") : ord("e")] = torch.tensor([4.0, 3.0, 2.0, 1.0])
    return logits


LOG_SHARES = torch.log_softmax(falling([]), dim=-1)[ord("a") : ord("e")].tolist()


async def test_logprobs_of_a_chat_are_the_model_s_own_whatever_chose_the_token() -> None:
    async with serving(loaded(DoubleRuntime(falling))) as server:
        answer = await server.client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "x"}],
            max_tokens=2,
            temperature=0,
            logprobs=True,
            top_logprobs=2,
            logit_bias={str(ord("c")): 50},
        )
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].message.content == "cc"
    assert logprobs is not None
    assert logprobs.content is not None
    for token in logprobs.content:
        assert (token.token, token.bytes) == ("c", [ord("c")])
        assert token.logprob == pytest.approx(LOG_SHARES[2])
        assert [t.token for t in token.top_logprobs] == ["a", "b"]
        assert [t.logprob for t in token.top_logprobs] == pytest.approx(LOG_SHARES[:2])
    assert len(logprobs.content) == 2


async def test_logprobs_of_a_completion_stream_as_they_are_whole() -> None:
    async with serving(loaded(DoubleRuntime(falling))) as server:
        create = server.client.completions.create
        whole = (await create(model=MODEL, prompt="x", max_tokens=3, temperature=0, logprobs=1)).choices[0].logprobs
        stream = await create(model=MODEL, prompt="x", max_tokens=3, temperature=0, logprobs=1, stream=True)
        parts = [chunk.choices[0].logprobs async for chunk in stream]
    assert whole is not None
    assert whole.tokens == ["a", "a", "a"]
    assert whole.token_logprobs == pytest.approx([LOG_SHARES[0]] * 3)
    assert whole.top_logprobs is not None
    assert [list(top) for top in whole.top_logprobs] == [["a"]] * 3
    assert [top["a"] for top in whole.top_logprobs] == pytest.approx([LOG_SHARES[0]] * 3)
    assert whole.text_offset == [0, 1, 2]
    assert [part.text_offset for part in parts if part] == [[0], [1], [2]]
    assert [part.tokens for part in parts if part] == [["a"], ["a"], ["a"]]


async def test_a_token_that_is_part_of_a_character_has_its_bytes(hello: Server) -> None:
    answer = await hello.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hi"}], logprobs=True, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    shown = bytes(byte for token in logprobs.content for byte in token.bytes or [])
    assert shown.decode() == answer.choices[0].message.content == "Héllo 🙂!"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "aaaaaa"),
        ({"presence_penalty": 1.5}, "abaaaa"),
        ({"frequency_penalty": 1.2}, "abacba"),
        ({"extra_body": {"repetition_penalty": 1.4}}, "abaaaa"),
        ({"logit_bias": {str(ord("a")): -100}}, "bbbbbb"),
    ],
)
async def test_penalties_and_biases_change_what_is_said(settings: dict[str, Any], text: str) -> None:
    async with serving(loaded(DoubleRuntime(falling))) as server:
        answer = await server.client.completions.create(
            model=MODEL, prompt="x", max_tokens=6, temperature=0, **settings
        )
    assert answer.choices[0].text == text


async def test_a_request_that_is_not_over_in_time_is_answered_so_and_frees_its_slot() -> None:
    runtime = DoubleRuntime(endless, slots=1, context=64)
    async with serving(loaded(runtime)) as server:
        for stream in (False, True):
            runtime.gate.clear()
            response = await server.http.post(
                "/v1/completions",
                json={"model": MODEL, "prompt": "x", "max_tokens": 60, "stream": stream},
                headers={"x-request-timeout": "0.05"},
            )
            assert server.engine.live == 0
            runtime.gate.set()
            error = json.loads(response.text.removeprefix("data: "))["error"]
            assert (error["type"], error["code"]) == ("timeout", "timeout")
            assert error["message"] == "the request was not over after 0.05 s"
            if not stream:
                assert (response.status_code, response.headers["x-should-retry"]) == (504, "false")
        page = (await server.http.get("/metrics")).text
        assert 'trtllm_request_success_total{model_name="tiny",finished_reason="timeout"} 2' in page


async def test_a_timeout_that_is_no_time_is_refused(hello: Server) -> None:
    response = await hello.http.post(
        "/v1/completions", json={"model": MODEL, "prompt": "x"}, headers={"x-request-timeout": "soon"}
    )
    assert response.status_code == 400
    assert "x-request-timeout must be a number of seconds above 0, got 'soon'" in response.json()["error"]["message"]


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


async def test_variables_of_the_chat_template_reach_it(hello: Server) -> None:
    prompts = []
    for settings in ({}, {"enable_thinking": False}):
        answer = await hello.client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], extra_body={"chat_template_kwargs": settings}
        )
        assert answer.usage is not None
        prompts.append(answer.usage.prompt_tokens)
    assert prompts[1] - prompts[0] == len("enable_thinking: False\n")


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
    pytest.param({"n": 0}, "n", "n: Input should be greater than or equal to 1, got 0", id="n"),
    pytest.param({"frequency_penalty": 3}, "frequency_penalty", "less than or equal to 2, got 3", id="penalty"),
    pytest.param({"logprobs": 2}, "logprobs", "logprobs: Input should be a valid boolean", id="logprobs"),
    pytest.param({"top_logprobs": 2}, None, "only allowed together with logprobs: true", id="top logprobs"),
    pytest.param({"logit_bias": {"300": 2}}, "logit_bias", "token ids must be in [0, 256)", id="bias"),
    pytest.param({"response_format": {"type": "xml"}}, "response_format", "'json_schema'", id="format"),
    pytest.param({"lora_request": {"name": "x"}}, "lora_request", "merge the adapter into the checkpoint", id="lora"),
    pytest.param({"store": True}, "store", "not supported by this server; leave it out or send false", id="store"),
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
