"""OpenAI's requests and responses, as far as this server speaks them. What it can not do is refused, never ignored."""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    model_serializer,
    model_validator,
)

from trtllm_engine.serve.engine import FinishReason, SamplingParams

MAX_STOPS: Final = 4
DEFAULT_COMPLETION_TOKENS: Final = 16
"""OpenAI's default for /v1/completions; a chat answer may use what the context leaves."""


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    error: ErrorDetail


class ApiError(Exception):
    """An answer in OpenAI's error shape."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        """`kind` is the shape's `type`; `retry_after` seconds become the header of that name."""
        super().__init__(message)
        self.status = status
        self.body = ErrorBody(error=ErrorDetail(message=message, type=kind, param=param, code=code))
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}


def _only(*neutral: JsonValue) -> AfterValidator:
    """A field that exists in OpenAI's API but has no effect here except at its neutral values."""

    def check(value: JsonValue) -> JsonValue:
        if value is not None and value not in neutral:
            allowed = " or ".join(str(item).lower() if isinstance(item, bool) else repr(item) for item in neutral)
            raise ValueError(f"not supported by this server; leave it out{' or send ' + allowed if allowed else ''}")
        return value

    return AfterValidator(check)


def _encodable(text: str) -> str:
    """JSON can spell half of a surrogate pair, which is no character; tokenizers fail on it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"no valid text: half of a surrogate pair at character {error.start}") from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]


def _listed(value: JsonValue) -> JsonValue:
    return [value] if isinstance(value, str) else value


StopString = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include_usage: bool | None = None


class _Request(BaseModel):
    """What both endpoints share."""

    model_config = ConfigDict(extra="forbid")

    model: str
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    seed: int | None = None
    stop: Annotated[list[StopString] | None, Field(max_length=MAX_STOPS), BeforeValidator(_listed)] = None
    """One text or a list of texts."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    """Accepted as it changes no answer; not logged."""

    n: Annotated[int | None, _only(1)] = None
    frequency_penalty: Annotated[float | None, _only(0)] = None
    presence_penalty: Annotated[float | None, _only(0)] = None
    logit_bias: Annotated[dict[str, float] | None, _only({})] = None

    @model_validator(mode="after")
    def _stream_options_need_stream(self) -> _Request:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: only allowed together with stream: true")
        return self

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def sampling(self, *, wanted: int | None, room: int) -> SamplingParams:
        """`wanted` tokens, or as many as the context leaves (`room`), whichever is less."""
        return SamplingParams(
            max_tokens=room if wanted is None else min(wanted, room),
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            stop=tuple(self.stop or ()),
        )


class CompletionRequest(_Request):
    """Body of POST /v1/completions. `prompt` is a text, a list with one text, or a list of token ids."""

    prompt: Text | list[int] | Annotated[list[Text], Field(min_length=1, max_length=1)]

    best_of: Annotated[int | None, _only(1)] = None
    echo: Annotated[bool | None, _only(False)] = None
    logprobs: Annotated[int | None, _only()] = None
    suffix: Annotated[str | None, _only("")] = None


class TextPart(BaseModel):
    """The only kind of content part that a text model takes."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: Text


class FunctionCall(BaseModel):
    name: str
    arguments: str


class ToolCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall

    def for_template(self) -> dict[str, JsonValue]:
        """Arguments as an object, which templates write out themselves; those that are no JSON stay a text."""
        try:
            arguments: JsonValue = json.loads(self.function.arguments)
        except ValueError:
            arguments = self.function.arguments
        return {"id": self.id, "type": self.type, "function": {"name": self.function.name, "arguments": arguments}}


class ChatMessage(BaseModel):
    """One turn. `developer` is what OpenAI calls `system` for newer models; templates know only the latter."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> ChatMessage:
        if self.content is None and not self.tool_calls:
            raise ValueError("content: required, except for an assistant's message with tool_calls")
        return self

    def for_template(self) -> dict[str, JsonValue]:
        """As chat templates expect it: one text, absent fields left out."""
        parts = self.content
        message: dict[str, JsonValue] = self.model_dump(exclude_none=True, exclude={"refusal", "tool_calls"})
        if self.tool_calls:
            message["tool_calls"] = [call.for_template() for call in self.tool_calls]
        message["role"] = "system" if self.role == "developer" else self.role
        message["content"] = "".join(part.text for part in parts) if isinstance(parts, list) else parts or ""
        return message


class FunctionDefinition(BaseModel):
    name: str
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: Annotated[bool | None, _only(False)] = None


class Tool(BaseModel):
    """Given to the chat template; what the model answers is returned as text."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["function"]
    function: FunctionDefinition


class ResponseFormat(BaseModel):
    type: Annotated[str, _only("text")]


class ChatCompletionRequest(_Request):
    """Body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Annotated[JsonValue, _only("auto", "none")] = None

    logprobs: Annotated[bool | None, _only(False)] = None
    top_logprobs: Annotated[int | None, _only(0)] = None
    response_format: ResponseFormat | None = None
    parallel_tool_calls: bool | None = None
    store: Annotated[bool | None, _only(False)] = None
    metadata: dict[str, str] | None = None

    def template_tools(self) -> list[dict[str, JsonValue]] | None:
        if not self.tools or self.tool_choice == "none":
            return None
        return [tool.model_dump(exclude_none=True) for tool in self.tools]


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "trtllm-operator"
    max_model_len: int
    """Tokens of prompt and answer together."""


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


class Response(BaseModel):
    """What all answers and chunks carry."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    usage: Usage | None = None


class CompletionChoice(BaseModel):
    index: int = 0
    text: str
    logprobs: None = None
    finish_reason: FinishReason | None = None


class Completion(Response):
    """The whole answer, or one chunk of it: OpenAI uses one shape for both."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(BaseModel):
    index: int = 0
    message: AssistantMessage
    logprobs: None = None
    finish_reason: FinishReason


class ChatCompletion(Response):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class ChatDelta(BaseModel):
    """Fields that do not change are absent, not null."""

    role: Literal["assistant"] | None = None
    content: str | None = None

    @model_serializer
    def _changed_only(self) -> dict[str, str]:
        return {name: value for name, value in (("role", self.role), ("content", self.content)) if value is not None}


class ChatChunkChoice(BaseModel):
    index: int = 0
    delta: ChatDelta
    logprobs: None = None
    finish_reason: FinishReason | None = None


class ChatCompletionChunk(Response):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatChunkChoice]
