"""One response in OpenAI's words: as a whole, or as the chunks of a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trtllm_engine.serve.choice import TokenLogprobs
from trtllm_engine.serve.generation import Delta, FinishReason
from trtllm_engine.serve.openai_api import (
    AssistantMessage,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprobs,
    ChosenToken,
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    Response,
    ScoredToken,
    Usage,
)

TokenBytes = Callable[[int], bytes]


@dataclass(slots=True)
class Whole:
    """All of one answer, put together from its deltas."""

    text: str = ""
    finish_reason: FinishReason | None = None
    logprobs: list[tuple[int, TokenLogprobs]] = field(default_factory=list)
    """With the length of the text that was shown before."""

    def add(self, delta: Delta) -> None:
        if delta.logprobs:
            self.logprobs.append((len(self.text), delta.logprobs))
        self.text += delta.text
        self.finish_reason = delta.finish_reason


class Answer(Protocol):
    """The shape of one endpoint's answers."""

    @property
    def id(self) -> str:
        """Names this response in the response itself and in the log."""

    def opening(self, index: int) -> Sequence[Response]:
        """Chunks before an answer's first text."""

    def chunk(self, index: int, delta: Delta) -> Response:
        """One piece of one answer; to be asked for each in turn."""

    def usage(self, usage: Usage) -> Response:
        """The chunk without choices that ends a stream with `include_usage`."""

    def whole(self, answers: Sequence[Whole], usage: Usage) -> Response:
        """What is not streamed; every answer has its reason."""


@dataclass(slots=True)
class CompletionAnswer:
    """/v1/completions."""

    model: str
    system_fingerprint: str
    token_bytes: TokenBytes
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))
    _shown: dict[int, int] = field(default_factory=dict)
    """Characters of each answer that were streamed."""

    def opening(self, index: int) -> Sequence[Completion]:
        return []

    def chunk(self, index: int, delta: Delta) -> Completion:
        logprobs = None
        if delta.logprobs:
            offset = self._shown.get(index, 0)
            self._shown[index] = offset + len(delta.text)
            logprobs = self._logprobs([(offset, delta.logprobs)])
        choice = CompletionChoice(index=index, text=delta.text, logprobs=logprobs, finish_reason=delta.finish_reason)
        return self._make([choice])

    def usage(self, usage: Usage) -> Completion:
        return self._make([], usage)

    def whole(self, answers: Sequence[Whole], usage: Usage) -> Completion:
        choices = [
            CompletionChoice(
                index=index,
                text=answer.text,
                logprobs=self._logprobs(answer.logprobs) if answer.logprobs else None,
                finish_reason=answer.finish_reason,
            )
            for index, answer in enumerate(answers)
        ]
        return self._make(choices, usage)

    def _logprobs(self, scored: Sequence[tuple[int, TokenLogprobs]]) -> CompletionLogprobs:
        return CompletionLogprobs(
            tokens=[self._text(item.token) for _, item in scored],
            token_logprobs=[item.logprob for _, item in scored],
            top_logprobs=[{self._text(token): value for token, value in item.top} for _, item in scored],
            text_offset=[offset for offset, _ in scored],
        )

    def _text(self, token: int) -> str:
        return self.token_bytes(token).decode(errors="replace")

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
    token_bytes: TokenBytes
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def opening(self, index: int) -> Sequence[ChatCompletionChunk]:
        return [self._chunk([ChatChunkChoice(index=index, delta=ChatDelta(role="assistant", content=""))])]

    def chunk(self, index: int, delta: Delta) -> ChatCompletionChunk:
        choice = ChatChunkChoice(
            index=index,
            delta=ChatDelta(content=delta.text or None),
            logprobs=self._logprobs([delta.logprobs]) if delta.logprobs else None,
            finish_reason=delta.finish_reason,
        )
        return self._chunk([choice])

    def usage(self, usage: Usage) -> ChatCompletionChunk:
        return self._chunk([], usage)

    def whole(self, answers: Sequence[Whole], usage: Usage) -> ChatCompletion:
        choices = [
            ChatChoice(
                index=index,
                message=AssistantMessage(content=answer.text),
                logprobs=self._logprobs([item for _, item in answer.logprobs]) if answer.logprobs else None,
                finish_reason=answer.finish_reason,
            )
            for index, answer in enumerate(answers)
        ]
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=self.system_fingerprint,
            choices=choices,
            usage=usage,
        )

    def _logprobs(self, scored: Sequence[TokenLogprobs]) -> ChatLogprobs:
        content = []
        for item in scored:
            chosen, top = self._scored(item.token, item.logprob), [self._scored(*pair) for pair in item.top]
            content.append(ChosenToken(**chosen.model_dump(), top_logprobs=top))
        return ChatLogprobs(content=content)

    def _scored(self, token: int, logprob: float) -> ScoredToken:
        text = self.token_bytes(token)
        return ScoredToken(token=text.decode(errors="replace"), logprob=logprob, bytes=list(text))

    def _chunk(self, choices: list[ChatChunkChoice], usage: Usage | None = None) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self.id,
            created=self.created,
            model=self.model,
            system_fingerprint=self.system_fingerprint,
            choices=choices,
            usage=usage,
        )
