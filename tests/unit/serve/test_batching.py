"""Many requests at once: nobody's answer depends on the others, and nobody waits without bound."""

from __future__ import annotations

import asyncio
import random

import httpx
import openai
import pytest

from tests.unit.serve.doubles import DoubleRuntime, DoubleTokenizer, endless, loaded, saying
from tests.unit.serve.harness import MODEL, Server, serving
from tests.unit.serve.tiny import tiny_runtime
from trtllm_engine.serve.load import Loaded


async def complete(server: Server, prompt: list[int] | str, tokens: int) -> str:
    answer = await server.client.completions.create(model=MODEL, prompt=prompt, max_tokens=tokens, temperature=0)
    return answer.choices[0].text


async def test_64_concurrent_greedy_answers_of_a_real_decoder_equal_those_one_by_one() -> None:
    """Prompts of 1 to 150 tokens over 5 slots: chunked prefill, shared steps, reused slots."""
    lengths = random.Random(3)
    prompts = [[lengths.randrange(2, 250) for _ in range(lengths.randint(1, 150))] for _ in range(64)]
    tokens = [lengths.randint(1, 16) for _ in prompts]
    engine = Loaded(tiny_runtime(slots=5, context=192), DoubleTokenizer(), frozenset())
    async with serving(engine) as server:
        jobs = list(zip(prompts, tokens, strict=True))
        alone = [await complete(server, prompt, n) for prompt, n in jobs]
        together = await asyncio.gather(*[complete(server, prompt, n) for prompt, n in jobs])
    assert together == alone
    assert len(set(alone)) > 56, "the decoder tells the prompts apart"


async def test_live_requests_share_steps() -> None:
    runtime = DoubleRuntime(endless, slots=4)
    async with serving(loaded(runtime)) as server:
        runtime.gate.clear()
        jobs = [asyncio.create_task(complete(server, "x", 10)) for _ in range(4)]
        await live(server, 4)
        runtime.gate.set()
        await asyncio.gather(*jobs)
    assert max(len(rows) for rows in runtime.steps) == 4
    assert len(runtime.steps) < 20, "of 40 for one by one"


async def test_a_full_queue_refuses_at_once_and_takes_again_when_there_is_room() -> None:
    runtime = DoubleRuntime(saying("ok"), slots=1)
    async with serving(loaded(runtime), max_waiting=2) as server:
        runtime.gate.clear()
        jobs = [asyncio.create_task(complete(server, "x", 5)) for _ in range(3)]
        await live(server, 3)
        with pytest.raises(openai.RateLimitError) as refused:
            await complete(server, "x", 5)
        assert refused.value.response.headers["retry-after"] == "1"
        assert refused.value.code == "queue_full"
        assert await server.metric("trtllm_num_requests_running") == 1
        assert await server.metric("trtllm_num_requests_waiting") == 2
        runtime.gate.set()
        assert await asyncio.gather(*jobs) == ["ok"] * 3
        assert await complete(server, "x", 5) == "ok"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_slot(stream: bool) -> None:
    runtime = DoubleRuntime(endless, slots=1, context=100_000)
    async with serving(loaded(runtime)) as server:
        request = {"model": MODEL, "prompt": "x", "max_tokens": 90_000, "stream": stream}
        async with httpx.AsyncClient(base_url=server.http.base_url) as leaving:
            job = asyncio.create_task(leaving.post("/v1/completions", json=request))
            await live(server, 1)
            job.cancel()
        await server.settled()
        assert len(runtime.steps) < 80_000
        assert await complete(server, "x", 3) == "cde"
        page = (await server.http.get("/metrics")).text
        assert 'trtllm_request_success_total{model_name="tiny",finished_reason="abort"} 1' in page


async def test_a_client_that_leaves_the_queue_is_forgotten() -> None:
    runtime = DoubleRuntime(saying("ok"), slots=1)
    async with serving(loaded(runtime)) as server:
        runtime.gate.clear()
        first = asyncio.create_task(complete(server, "x", 5))
        await live(server, 1)
        second = asyncio.create_task(complete(server, "x", 5))
        await live(server, 2)
        second.cancel()
        await live(server, 1)
        runtime.gate.set()
        assert await first == "ok"


async def test_a_step_that_fails_ends_every_request_with_an_error_and_no_more_are_taken() -> None:
    runtime = DoubleRuntime(endless, slots=2)
    runtime.dies_at = 4
    async with serving(loaded(runtime)) as server:
        stream = await server.client.completions.create(model=MODEL, prompt="x", max_tokens=9, stream=True)
        with pytest.raises(openai.APIError, match="RuntimeError: the device fell off the bus"):
            async for _ in stream:
                pass
        with pytest.raises(openai.InternalServerError, match="the engine stopped"):
            await complete(server, "x", 9)


async def test_metrics_count_requests_tokens_and_times() -> None:
    async with serving(loaded(DoubleRuntime(endless))) as server:
        await complete(server, "abc", 5)
        assert await server.metric("trtllm_num_requests_running") == 0
        assert await server.metric("trtllm_prompt_tokens_total") == 4
        assert await server.metric("trtllm_generation_tokens_total") == 5
        assert await server.metric("trtllm_time_to_first_token_seconds_count") == 1
        assert await server.metric("trtllm_inter_token_latency_seconds_count") == 4
        assert await server.metric("trtllm_e2e_request_latency_seconds_count") == 1
        page = (await server.http.get("/metrics")).text
        assert "# TYPE trtllm_time_to_first_token_seconds histogram" in page
        assert 'trtllm_time_to_first_token_seconds_bucket{model_name="tiny",le="+Inf"} 1' in page
        assert 'trtllm_request_success_total{model_name="tiny",finished_reason="length"} 1' in page


async def test_the_access_log_has_numbers_and_no_text(capfd: pytest.CaptureFixture[str]) -> None:
    async with serving(loaded(DoubleRuntime(saying("an answer")))) as server:
        await server.client.completions.create(model=MODEL, prompt="a secret", extra_query={"key": "a secret"})
    log = capfd.readouterr().err
    assert '"path": "/v1/completions"' in log
    assert '"promptTokens": 9, "completionTokens": 10, "finishReason": "stop"' in log
    assert "secret" not in log
    assert "answer" not in log


async def live(server: Server, requests: int) -> None:
    """Return when so many requests are in the engine, within a deadline."""
    async with asyncio.timeout(10):
        while server.engine.live != requests:
            await asyncio.sleep(0.002)
