"""OpenAI's requests and responses, as far as this server speaks them. What it can not do is refused, never ignored."""

from __future__ import annotations

import json
from collections.abc import Sequence
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

from trtllm_engine.serve.generation import FinishReason, SamplingParams
from trtllm_engine.serve.shaping import Penalties

MAX_STOPS: Final = 4
MAX_ANSWERS: Final = 128
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
        retry: bool = True,
    ) -> None:
        """`kind` is the shape's `type`; `retry_after` seconds become the header of that name.

        `retry` false tells the official clients not to try again, which they do after most statuses from 500 on.
        """
        super().__init__(message)
        self.status = status
        self.body = ErrorBody(error=ErrorDetail(message=message, type=kind, param=param, code=code))
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        if not retry:
            self.headers["x-should-retry"] = "false"


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


def _refused(reason: str) -> BeforeValidator:
    """A field that other servers have, and why this one has not."""

    def check(value: JsonValue) -> JsonValue:
        if value is not None:
            raise ValueError(reason)
        return value

    return BeforeValidator(check)


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

    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    """Answers to each prompt."""
    frequency_penalty: Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] | None = None
    """Not OpenAI's, but widespread: 1 changes nothing, more makes what was there before less likely."""
    logit_bias: dict[int, Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]] | None = None
    """By token id."""
    lora_request: Annotated[
        JsonValue, _refused("LoRA adapters are not served; merge the adapter into the checkpoint, and deploy that")
    ] = None

    @model_validator(mode="after")
    def _stream_options_need_stream(self) -> _Request:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: only allowed together with stream: true")
        return self

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def sampling(self, *, wanted: int | None, default: int | None, room: int, logprobs: int | None) -> SamplingParams:
        """`wanted` tokens, else the default, else what the context leaves (`room`). Raises `ApiError` beyond it."""
        if wanted is not None and wanted > room:
            raise ApiError(
                400,
                f"max_tokens: {wanted}, but the prompt leaves {room} tokens of this engine's context; ask for at most "
                f"{room}, leave it out, or raise buildConfig.maxSeqLen of the deployment",
                param="max_tokens",
                code="context_length_exceeded",
            )
        return SamplingParams(
            max_tokens=wanted or min(room, default or room),
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            stop=tuple(self.stop or ()),
            penalties=Penalties(
                frequency=self.frequency_penalty or 0.0,
                presence=self.presence_penalty or 0.0,
                repetition=self.repetition_penalty or 1.0,
            ),
            bias=tuple((self.logit_bias or {}).items()),
            logprobs=logprobs,
        )


class CompletionRequest(_Request):
    """Body of POST /v1/completions. `prompt` is a text or a list of token ids, or a list of either."""

    prompt: Text | list[int] | Annotated[list[Text] | list[list[int]], Field(min_length=1, max_length=MAX_ANSWERS)]
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    """With each token its log probability, and those of so many most likely ones."""

    best_of: Annotated[int | None, _only(1)] = None
    echo: Annotated[bool | None, _only(False)] = None
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


class PlainText(BaseModel):
    type: Literal["text"]


class AnyJson(BaseModel):
    """An object, whatever is in it."""

    type: Literal["json_object"]


class NamedSchema(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    description: str | None = None
    schema_: Annotated[dict[str, JsonValue], Field(alias="schema")]
    strict: bool | None = None
    """True: the answer has nothing that the schema does not name."""


class JsonSchema(BaseModel):
    type: Literal["json_schema"]
    json_schema: NamedSchema


class ChatCompletionRequest(_Request):
    """Body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Annotated[JsonValue, _only("auto", "none")] = None
    chat_template_kwargs: dict[str, JsonValue] | None = None
    """Not OpenAI's, but widespread: variables of the model's chat template, such as `enable_thinking`."""

    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: Annotated[PlainText | AnyJson | JsonSchema, Field(discriminator="type")] | None = None
    parallel_tool_calls: bool | None = None
    store: Annotated[bool | None, _only(False)] = None
    metadata: dict[str, str] | None = None

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> ChatCompletionRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs: only allowed together with logprobs: true")
        return self

    def wanted_logprobs(self) -> int | None:
        """How many most likely tokens to report with each; None: no probabilities at all."""
        return (self.top_logprobs or 0) if self.logprobs else None

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


class CompletionLogprobs(BaseModel):
    """Lists of equal length, one item per token; an end-of-sequence token is not among them."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]
    """Where in the shown text each token came."""


class ScoredToken(BaseModel):
    token: str
    logprob: float
    bytes: list[int]
    """Of UTF-8: a token may hold part of a character."""


class ChosenToken(ScoredToken):
    top_logprobs: Sequence[ScoredToken]


class ChatLogprobs(BaseModel):
    content: list[ChosenToken]
    refusal: None = None


class CompletionChoice(BaseModel):
    index: int = 0
    text: str
    logprobs: CompletionLogprobs | None = None
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
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None


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
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None


class ChatCompletionChunk(Response):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatChunkChoice]
