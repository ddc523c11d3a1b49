"""The HTTP surface: OpenAI's endpoints, probes and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trtllm_engine import __version__
from trtllm_engine.serve import metrics as prometheus
from trtllm_engine.serve.answer import Answer, ChatAnswer, CompletionAnswer
from trtllm_engine.serve.engine import Engine, EngineDead, Generation, SamplingParams
from trtllm_engine.serve.event_stream import EventStream, cancelled_on_disconnect
from trtllm_engine.serve.health import Health, Phase
from trtllm_engine.serve.http_edge import SUMMARY, HttpEdge, Summary
from trtllm_engine.serve.metrics import Metrics
from trtllm_engine.serve.openai_api import (
    DEFAULT_COMPLETION_TOKENS,
    ApiError,
    ChatCompletionRequest,
    CompletionRequest,
    Model,
    ModelList,
    Usage,
)
from trtllm_engine.serve.scheduler import QueueFull
from trtllm_engine.serve.tokenizer import ChatTemplateError, Tokenizer

CLIENT_CLOSED_REQUEST = 499
"""Nobody reads it; it makes the log say why the answer is not whole."""


@dataclass(slots=True)
class Service:
    """What the endpoints stand on. `engine` and `tokenizer` are there once loading is over."""

    model_name: str
    health: Health = field(default_factory=Health)
    metrics: Metrics = field(default_factory=Metrics)
    engine: Engine | None = None
    tokenizer: Tokenizer | None = None
    created: int = field(default_factory=lambda: int(time.time()))

    def loaded(self) -> tuple[Engine, Tokenizer]:
        """Raises `ApiError` 503 before loading is over and after a failure."""
        if self.engine is None or self.tokenizer is None or not self.health.accepts:
            self.metrics.refused.add(value="not_ready")
            raise ApiError(
                503, f"not ready: {self.health.reason()}", kind="server_error", code="not_ready", retry_after=2
            )
        return self.engine, self.tokenizer

    def headers(self) -> Mapping[str, str]:
        """On every response: what computed it; while draining, that the connection ends with it."""
        device = {"x-trtllm-device": self.engine.runtime.device} if self.engine else {}
        return device | ({"connection": "close"} if self.health.phase is Phase.DRAINING else {})

    def check_model(self, name: str) -> None:
        if name != self.model_name:
            raise ApiError(
                404,
                f"the model {name!r} does not exist here; this server has {self.model_name!r}",
                param="model",
                code="model_not_found",
            )

    def fingerprint(self) -> str:
        return f"trtllm-engine-{__version__}-{self.engine.runtime.name if self.engine else 'none'}"


def create_app(service: Service) -> FastAPI:
    """The ASGI application over a service; it can be served before anything is loaded."""
    app = FastAPI(title="trtllm-engine", version=__version__, docs_url=None, redoc_url=None)
    app.add_middleware(HttpEdge, headers=service.headers)

    @app.get("/livez")
    async def livez() -> Response:
        alive = service.health.alive
        return PlainTextResponse("alive" if alive else service.health.reason(), 200 if alive else 503)

    @app.get("/readyz")
    async def readyz() -> Response:
        return PlainTextResponse(service.health.reason(), 200 if service.health.ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.render(service.model_name), media_type=prometheus.CONTENT_TYPE)

    @app.get("/v1/models")
    async def models() -> ModelList:
        return ModelList(data=[_model(service)])

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Model:
        service.check_model(name)
        return _model(service)

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        engine, tokenizer = service.loaded()
        service.check_model(body.model)
        prompt = await _completion_prompt(body, engine, tokenizer)
        wanted = DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
        params = body.sampling(wanted=wanted, room=_room(engine, prompt, "prompt"))
        answer = CompletionAnswer(body.model, service.fingerprint())
        return await _respond(service, request, answer, prompt, params, bool(body.stream), body.include_usage)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatCompletionRequest, request: Request) -> Response:
        engine, tokenizer = service.loaded()
        service.check_model(body.model)
        messages = [message.for_template() for message in body.messages]
        try:
            prompt = await asyncio.to_thread(tokenizer.encode_chat, messages, body.template_tools())
        except ChatTemplateError as error:
            raise ApiError(400, str(error), param="messages") from error
        wanted = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        params = body.sampling(wanted=wanted, room=_room(engine, prompt, "messages"))
        answer = ChatAnswer(body.model, service.fingerprint())
        return await _respond(service, request, answer, prompt, params, bool(body.stream), body.include_usage)

    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        return JSONResponse(error.body.model_dump(), error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        service.metrics.refused.add(value="invalid")
        return await api_error(request, _first_problem(error))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        return await api_error(request, ApiError(error.status_code, str(error.detail)))

    @app.exception_handler(EngineDead)
    async def engine_dead(request: Request, error: EngineDead) -> Response:
        return await api_error(request, ApiError(500, str(error), kind="server_error"))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return await api_error(request, ApiError(500, "internal error; the server's log has it", kind="server_error"))

    return app


async def _respond(
    service: Service,
    request: Request,
    answer: Answer,
    prompt: Sequence[int],
    params: SamplingParams,
    stream: bool,
    include_usage: bool,
) -> Response:
    engine, _ = service.loaded()
    try:
        generation = engine.submit(prompt, params)
    except QueueFull:
        service.metrics.refused.add(value="queue_full")
        raise ApiError(
            429,
            "too many requests are waiting; try again later, or add replicas",
            kind="rate_limit_error",
            code="queue_full",
            retry_after=1,
        ) from None
    summary: Summary = request.scope[SUMMARY]
    summary.id, summary.stream, summary.prompt_tokens = answer.id, stream, generation.prompt_tokens
    if stream:
        return EventStream(_events(answer, generation, summary, include_usage), generation)
    async with cancelled_on_disconnect(request.receive, generation):
        deltas = [delta async for delta in generation]
        _summarize(summary, generation, deltas[-1].finish_reason if deltas else None)
    if not deltas or (reason := deltas[-1].finish_reason) is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    text = "".join(delta.text for delta in deltas)
    return JSONResponse(answer.whole(text, reason, _usage(generation)).model_dump())


async def _events(answer: Answer, generation: Generation, summary: Summary, include_usage: bool) -> AsyncIterator[str]:
    reason: str | None = None
    try:
        for chunk in answer.opening():
            yield chunk.model_dump_json()
        async for delta in generation:
            reason = delta.finish_reason
            yield answer.chunk(delta).model_dump_json()
        if include_usage:
            yield answer.usage(_usage(generation)).model_dump_json()
        yield "[DONE]"
    except EngineDead as error:
        yield ApiError(500, str(error), kind="server_error").body.model_dump_json()
    finally:
        _summarize(summary, generation, reason)


def _summarize(summary: Summary, generation: Generation, reason: str | None) -> None:
    summary.completion_tokens = generation.completion_tokens
    summary.finish_reason = reason or "abort"


def _usage(generation: Generation) -> Usage:
    prompt, completion = generation.prompt_tokens, generation.completion_tokens
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


async def _completion_prompt(body: CompletionRequest, engine: Engine, tokenizer: Tokenizer) -> Sequence[int]:
    match body.prompt:
        case str(text) | [str(text)]:
            return await asyncio.to_thread(tokenizer.encode, text)
        case tokens:
            size = engine.runtime.vocab_size
            ids = [token for token in tokens if isinstance(token, int) and 0 <= token < size]
            if len(ids) != len(tokens):
                raise ApiError(400, f"prompt: token ids must be in [0, {size})", param="prompt")
            return ids


def _room(engine: Engine, prompt: Sequence[int], param: str) -> int:
    """Tokens that the context leaves for the answer, at least one. Raises `ApiError` 400 if there is no room."""
    if not prompt:
        raise ApiError(400, f"{param}: empty; at least one token is needed", param=param)
    limit = min(engine.runtime.max_input_len, engine.runtime.max_seq_len - 1)
    if len(prompt) > limit:
        raise ApiError(
            400,
            f"{param}: {len(prompt)} tokens, but this engine takes at most {limit} in a prompt "
            f"({engine.runtime.max_seq_len} together with the answer); shorten it, or raise buildConfig.maxInputLen "
            "and buildConfig.maxSeqLen of the deployment",
            param=param,
            code="context_length_exceeded",
        )
    return engine.runtime.max_seq_len - len(prompt)


def _model(service: Service) -> Model:
    engine, _ = service.loaded()
    return Model(id=service.model_name, created=service.created, max_model_len=engine.runtime.max_seq_len)


def _first_problem(error: RequestValidationError) -> ApiError:
    """The first of pydantic's errors, in OpenAI's shape: one field, one sentence.

    A union reports one error per alternative; the one that got deepest into the value is the one that was meant.
    """
    first, *others = error.errors()
    problem = max([first, *[o for o in others if o["loc"][:2] == first["loc"][:2]]], key=lambda e: len(e["loc"]))
    kind, value = str(problem["type"]), problem.get("input")
    if kind == "json_invalid":
        return ApiError(400, f"the body is not JSON: {problem['ctx']['error']}")
    param = _field_path(problem["loc"][1:])
    text = str(problem["msg"]).removeprefix("Value error, ")
    match kind:
        case "missing":
            message = f"{param}: required" if param else "a JSON object is required, with content-type application/json"
        case "extra_forbidden":
            message = f"{param}: unknown field; this server does not know it"
        case _ if isinstance(value, str | int | float):
            shown = repr(value)
            message = f"{param}: {text}, got {shown if len(shown) <= 40 else shown[:37] + '...'}"
        case _:
            message = f"{param}: {text}" if param else text
    return ApiError(400, message, param=param or None)


def _field_path(location: Sequence[int | str]) -> str:
    """`messages[0].content`; the names that pydantic gives to the alternatives of a union are left out."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part != "str":
            path += f".{part}" if path else part
    return path
