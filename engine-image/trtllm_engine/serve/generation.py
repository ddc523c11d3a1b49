"""One request inside the engine: its answers, each growing token by token, and the reading of them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trtllm_engine.serve import scheduler
from trtllm_engine.serve.choice import Choice, Chosen, TokenLogprobs
from trtllm_engine.serve.detokenize import Detokenizer
from trtllm_engine.serve.sampling import Draw
from trtllm_engine.serve.shaping import Penalties, Shaper
from trtllm_engine.serve.stop import StopMatcher

FinishReason = Literal["stop", "length"]


class EngineDead(RuntimeError):
    """A step failed; nothing that was in the cache can be trusted and the process must be replaced."""


class RequestTimeout(RuntimeError):
    """The request was not over within its time; the text says how long that was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one answer is chosen and when it ends."""

    max_tokens: int
    """At least 1; the caller sees that the context leaves so many."""
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    """Equal requests with equal seeds get equal answers; None: different ones."""
    stop: tuple[str, ...] = ()
    penalties: Penalties = field(default_factory=Penalties)
    bias: tuple[tuple[int, float], ...] = ()
    """(token, what is added to its logit)."""
    logprobs: int | None = None
    """None: no probabilities; else with each token its own, and those of so many most likely ones."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of an answer; the last one carries the reason."""

    text: str
    finish_reason: FinishReason | None = None
    logprobs: TokenLogprobs | None = None
    """Of the token that this piece came with, where it was asked for; the text of a token may come later."""


class Generation:
    """One answer. `index` tells the answers of a request apart, and gives each luck of its own."""

    def __init__(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        decode: Callable[[Sequence[int]], str],
        shapers: Sequence[Shaper],
        reply: Reply,
        index: int,
    ) -> None:
        self.params = params
        self.sequence = scheduler.Sequence(prompt)
        self.reply = reply
        self.index = index
        self.arrived = time.monotonic()
        self.last_token_at: float | None = None
        self._random = random.Random(params.seed if params.seed is None or not index else f"{params.seed}/{index}")
        self._shapers = shapers
        self._detokenizer = Detokenizer(decode)
        self._stop = StopMatcher(params.stop)

    @property
    def prompt_tokens(self) -> int:
        return len(self.sequence.prompt)

    @property
    def completion_tokens(self) -> int:
        """Generated so far, the end-of-sequence token included."""
        return len(self.sequence.output)

    def choice(self) -> Choice:
        """One random number per token, so the n-th token's luck depends on the seed and on n only."""
        draw = Draw(temperature=self.params.temperature, top_p=self.params.top_p, uniform=self._random.random())
        return Choice(draw, self._shapers, self.params.logprobs)

    def show(self, chosen: Chosen, *, end: bool) -> FinishReason | None:
        """Take the next token (`end`: it ends the sequence and has no text) and publish what it makes visible."""
        for shaper in self._shapers:
            shaper.accept(chosen.token)
        text = "" if end else self._stop.push(self._detokenizer.push(chosen.token))
        reason: FinishReason | None = None
        if end or self._stop.stopped:
            reason = "stop"
        elif self.completion_tokens >= self.params.max_tokens:
            reason = "length"
        if reason and not self._stop.stopped:
            text += self._stop.push(self._detokenizer.flush())
            reason = "stop" if self._stop.stopped else reason
            text += self._stop.flush()
        logprobs = None if end else chosen.logprobs
        if text or reason or logprobs:
            self.reply.publish(self.index, Delta(text, reason, logprobs))
        return reason


class Reply:
    """The answers to one request. Iterate once over (index, delta); `cancel` when nobody reads any more."""

    def __init__(self, cancel: Callable[[Reply], None]) -> None:
        self.generations: list[Generation] = []
        self.live = 0
        """Answers that are not over."""
        self.expiry: asyncio.TimerHandle | None = None
        self._cancel = cancel
        self._items: asyncio.Queue[tuple[int, Delta] | EngineDead | RequestTimeout | None] = asyncio.Queue()

    @property
    def prompt_tokens(self) -> int:
        """Each prompt once, however many answers it gets."""
        return sum({id(g.sequence.prompt): g.prompt_tokens for g in self.generations}.values())

    @property
    def completion_tokens(self) -> int:
        return sum(generation.completion_tokens for generation in self.generations)

    def cancel(self) -> None:
        """End all answers now and free their slots; the iteration stops. Nothing happens if they are over."""
        self._cancel(self)

    def publish(self, index: int, delta: Delta) -> None:
        self._items.put_nowait((index, delta))

    def close(self, error: EngineDead | RequestTimeout | None = None) -> None:
        """One answer is over; the iteration ends with the last, or at once with `error`."""
        self.live -= 1
        if error or not self.live:
            self._items.put_nowait(error)
        if not self.live and self.expiry:
            self.expiry.cancel()

    async def __aiter__(self) -> AsyncIterator[tuple[int, Delta]]:
        while (item := await self._items.get()) is not None:
            if isinstance(item, EngineDead | RequestTimeout):
                raise item
            yield item
