"""The HTTP surface: OpenAI's endpoints, probes and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from trtllm_engine import __version__
from trtllm_engine.serve import metrics as prometheus
from trtllm_engine.serve.answer import Answer, ChatAnswer, CompletionAnswer, Whole
from trtllm_engine.serve.engine import REQUEST_SECONDS, Engine
from trtllm_engine.serve.event_stream import EventStream, cancelled_on_disconnect
from trtllm_engine.serve.generation import EngineDead, Reply, RequestTimeout, SamplingParams
from trtllm_engine.serve.guide import ANY_OBJECT, Guide, SchemaError
from trtllm_engine.serve.health import Health, Phase
from trtllm_engine.serve.http_edge import SUMMARY, HttpEdge, Summary
from trtllm_engine.serve.metrics import Metrics
from trtllm_engine.serve.openai_api import (
    DEFAULT_COMPLETION_TOKENS,
    AnyJson,
    ApiError,
    ChatCompletionRequest,
    CompletionRequest,
    JsonSchema,
    Model,
    ModelList,
    Usage,
)
from trtllm_engine.serve.scheduler import QueueFull
from trtllm_engine.serve.shaping import Shaper
from trtllm_engine.serve.tokenizer import ChatTemplateError, Tokenizer

CLIENT_CLOSED_REQUEST = 499
"""Nobody reads it; it makes the log say why the answer is not whole."""

TIMEOUT_HEADER: Final = "x-request-timeout"
"""Seconds after which a client wants no answer any more."""

JSON_TYPE: Final = "application/json"


@dataclass(slots=True)
class Service:
    """What the endpoints stand on. `engine`, `tokenizer` and `guide` are there once loading is over."""

    model_name: str
    health: Health = field(default_factory=Health)
    metrics: Metrics = field(default_factory=Metrics)
    engine: Engine | None = None
    tokenizer: Tokenizer | None = None
    guide: Guide | None = None
    created: int = field(default_factory=lambda: int(time.time()))

    def start(self, engine: Engine, tokenizer: Tokenizer, end_tokens: frozenset[int]) -> None:
        """Loading is over: from now on requests are answered."""
        self.engine, self.tokenizer = engine, tokenizer
        self.guide = Guide(tokenizer, engine.runtime.vocab_size, end_tokens)
        self.health.phase = Phase.READY

    def loaded(self) -> tuple[Engine, Tokenizer, Guide]:
        """Raises `ApiError` 503 before loading is over and after a failure."""
        if self.engine is None or self.tokenizer is None or self.guide is None or not self.health.accepts:
            self.metrics.refused.add(value="not_ready")
            raise ApiError(
                503, f"not ready: {self.health.reason()}", kind="server_error", code="not_ready", retry_after=2
            )
        return self.engine, self.tokenizer, self.guide

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
        engine, tokenizer, _ = service.loaded()
        service.check_model(body.model)
        prompts = await _completion_prompts(body, engine, tokenizer)
        room = min(_room(engine, prompt, "prompt") for prompt in prompts)
        params = body.sampling(
            wanted=body.max_tokens, default=DEFAULT_COMPLETION_TOKENS, room=room, logprobs=body.logprobs
        )
        answer = CompletionAnswer(body.model, service.fingerprint(), tokenizer.token_bytes)
        reply = _submit(service, request, prompts, params, body.n or 1)
        return await _respond(request, answer, reply, stream=bool(body.stream), include_usage=body.include_usage)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatCompletionRequest, request: Request) -> Response:
        engine, tokenizer, guide = service.loaded()
        service.check_model(body.model)
        messages = [message.for_template() for message in body.messages]
        try:
            settings = body.chat_template_kwargs or {}
            prompt = await asyncio.to_thread(tokenizer.encode_chat, messages, body.template_tools(), settings)
        except ChatTemplateError as error:
            raise ApiError(400, str(error), param="messages") from error
        wanted = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
        room = _room(engine, prompt, "messages")
        params = body.sampling(wanted=wanted, default=None, room=room, logprobs=body.wanted_logprobs())
        grammar = await asyncio.to_thread(_grammar, body, guide)
        answer = ChatAnswer(body.model, service.fingerprint(), tokenizer.token_bytes)
        reply = _submit(service, request, [prompt], params, body.n or 1, grammar)
        return await _respond(request, answer, reply, stream=bool(body.stream), include_usage=body.include_usage)

    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        return JSONResponse(error.body.model_dump(), error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        service.metrics.refused.add(value="invalid")
        return await api_error(request, _wrong_type(request) or _first_problem(error))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        return await api_error(request, ApiError(error.status_code, str(error.detail)))

    @app.exception_handler(EngineDead)
    async def engine_dead(request: Request, error: EngineDead) -> Response:
        return await api_error(request, _as_api_error(error))

    @app.exception_handler(RequestTimeout)
    async def timed_out(request: Request, error: RequestTimeout) -> Response:
        return await api_error(request, _as_api_error(error))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return await api_error(request, ApiError(500, "internal error; the server's log has it", kind="server_error"))

    return app


def _submit(
    service: Service,
    request: Request,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    n: int,
    grammar: Callable[[], Shaper] | None = None,
) -> Reply:
    engine, _, _ = service.loaded()
    _checked([token for token, _ in params.bias], engine, "logit_bias")
    answers = len(prompts) * n
    if answers > engine.capacity:
        raise ApiError(
            400,
            f"n: {answers} answers in one request, but this server takes at most {engine.capacity} at a time; "
            "ask for fewer, or raise buildConfig.maxBatchSize of the deployment",
            param="n",
        )
    try:
        return engine.submit(prompts, params, n=n, grammar=grammar, seconds=_seconds(request))
    except QueueFull:
        service.metrics.refused.add(value="queue_full")
        raise ApiError(
            429,
            "too many requests are waiting; try again later, or add replicas",
            kind="rate_limit_error",
            code="queue_full",
            retry_after=1,
        ) from None


async def _respond(request: Request, answer: Answer, reply: Reply, *, stream: bool, include_usage: bool) -> Response:
    summary: Summary = request.scope[SUMMARY]
    summary.id, summary.stream, summary.prompt_tokens = answer.id, stream, reply.prompt_tokens
    if stream:
        return EventStream(_events(answer, reply, summary, include_usage), reply)
    answers = [Whole() for _ in reply.generations]
    async with cancelled_on_disconnect(request.receive, reply):
        try:
            async for index, delta in reply:
                answers[index].add(delta)
        finally:
            _summarize(summary, reply, [whole.finish_reason for whole in answers])
    if any(whole.finish_reason is None for whole in answers):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return JSONResponse(answer.whole(answers, _usage(reply)).model_dump())


async def _events(answer: Answer, reply: Reply, summary: Summary, include_usage: bool) -> AsyncIterator[str]:
    reasons: list[str | None] = [None] * len(reply.generations)
    try:
        for index in range(len(reasons)):
            for chunk in answer.opening(index):
                yield chunk.model_dump_json()
        async for index, delta in reply:
            reasons[index] = delta.finish_reason
            yield answer.chunk(index, delta).model_dump_json()
        if include_usage:
            yield answer.usage(_usage(reply)).model_dump_json()
        yield "[DONE]"
    except (EngineDead, RequestTimeout) as error:
        yield _as_api_error(error).body.model_dump_json()
    finally:
        _summarize(summary, reply, reasons)


def _summarize(summary: Summary, reply: Reply, reasons: Sequence[str | None]) -> None:
    """The reason is that of the answer that ended worst."""
    summary.completion_tokens = reply.completion_tokens
    summary.finish_reason = "abort" if None in reasons else "length" if "length" in reasons else "stop"


def _as_api_error(error: EngineDead | RequestTimeout) -> ApiError:
    if isinstance(error, RequestTimeout):
        return ApiError(504, str(error), kind="timeout", code="timeout", retry=False)
    return ApiError(500, str(error), kind="server_error")


def _usage(reply: Reply) -> Usage:
    prompt, completion = reply.prompt_tokens, reply.completion_tokens
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def _seconds(request: Request) -> float:
    """How long this request may live: what the client says, within what the server allows."""
    if (said := request.headers.get(TIMEOUT_HEADER)) is None:
        return REQUEST_SECONDS
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ApiError(400, f"the header {TIMEOUT_HEADER} must be a number of seconds above 0, got {said[:40]!r}")
    return min(seconds, REQUEST_SECONDS)


def _grammar(body: ChatCompletionRequest, guide: Guide) -> Callable[[], Shaper] | None:
    """What the answer must follow; None: nothing."""
    try:
        match body.response_format:
            case AnyJson():
                return guide.compile(ANY_OBJECT, strict=False)
            case JsonSchema(json_schema=named):
                return guide.compile(named.schema_, strict=bool(named.strict))
            case _:
                return None
    except SchemaError as error:
        raise ApiError(400, f"response_format: {error}", param="response_format") from error


async def _completion_prompts(body: CompletionRequest, engine: Engine, tokenizer: Tokenizer) -> list[Sequence[int]]:
    """The tokens of every prompt."""
    match body.prompt:
        case str(text):
            return [await asyncio.to_thread(tokenizer.encode, text)]
        case [str(), *_] as texts:
            return [await asyncio.to_thread(tokenizer.encode, text) for text in texts if isinstance(text, str)]
        case [list(), *_] as prompts:
            return [_checked(tokens, engine, "prompt") for tokens in prompts if isinstance(tokens, list)]
        case tokens:
            return [_checked(tokens, engine, "prompt")]


def _checked(tokens: Sequence[object], engine: Engine, param: str) -> Sequence[int]:
    size = engine.runtime.vocab_size
    ids = [token for token in tokens if isinstance(token, int) and 0 <= token < size]
    if len(ids) != len(tokens):
        raise ApiError(400, f"{param}: token ids must be in [0, {size})", param=param)
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
    engine, _, _ = service.loaded()
    return Model(id=service.model_name, created=service.created, max_model_len=engine.runtime.max_seq_len)


def _wrong_type(request: Request) -> ApiError | None:
    """A body that is not declared as JSON is not read as such, and every field would seem to be missing."""
    sent = request.headers.get("content-type", "")
    if sent.partition(";")[0].strip().lower() == JSON_TYPE:
        return None
    found = f"got {sent[:60]!r}" if sent else "it is missing"
    return ApiError(400, f"the header content-type must be {JSON_TYPE}; {found}", code="invalid_content_type")


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
            message = f"{param}: required" if param else "the body must be a JSON object"
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
