"""One answer in OpenAI's words: as a whole, or as the chunks of a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trtllm_engine.serve.engine import Delta, FinishReason
from trtllm_engine.serve.openai_api import (
    AssistantMessage,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    Completion,
    CompletionChoice,
    Response,
    Usage,
)


class Answer(Protocol):
    """The shape of one endpoint's answers."""

    @property
    def id(self) -> str:
        """Names this answer in the response and in the log."""

    def opening(self) -> Sequence[Response]:
        """Chunks before the first text."""

    def chunk(self, delta: Delta) -> Response:
        """One piece of the text."""

    def usage(self, usage: Usage) -> Response:
        """The chunk without choices that ends a stream with `include_usage`."""

    def whole(self, text: str, reason: FinishReason, usage: Usage) -> Response:
        """The answer that is not streamed."""


@dataclass(frozen=True, slots=True)
class CompletionAnswer:
    """/v1/completions."""

    model: str
    system_fingerprint: str
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def opening(self) -> Sequence[Completion]:
        return []

    def chunk(self, delta: Delta) -> Completion:
        return self._make([CompletionChoice(text=delta.text, finish_reason=delta.finish_reason)])

    def usage(self, usage: Usage) -> Completion:
        return self._make([], usage)

    def whole(self, text: str, reason: FinishReason, usage: Usage) -> Completion:
        return self._make([CompletionChoice(text=text, finish_reason=reason)], usage)

    def _make(self, choices: list[CompletionChoice], usage: Usage | None = None) -> Completion:
        return Completion(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=self.system_fingerprint,
            choices=choices,
            usage=usage,
        )


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """/v1/chat/completions."""

    model: str
    system_fingerprint: str
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def opening(self) -> Sequence[ChatCompletionChunk]:
        return [self._chunk([ChatChunkChoice(delta=ChatDelta(role="assistant", content=""))])]

    def chunk(self, delta: Delta) -> ChatCompletionChunk:
        content = ChatDelta(content=delta.text or None)
        return self._chunk([ChatChunkChoice(delta=content, finish_reason=delta.finish_reason)])

    def usage(self, usage: Usage) -> ChatCompletionChunk:
        return self._chunk([], usage)

    def whole(self, text: str, reason: FinishReason, usage: Usage) -> ChatCompletion:
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=self.system_fingerprint,
            choices=[ChatChoice(message=AssistantMessage(content=text), finish_reason=reason)],
            usage=usage,
        )

    def _chunk(self, choices: list[ChatChunkChoice], usage: Usage | None = None) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=self.system_fingerprint,
            choices=choices,
            usage=usage,
        )
