"""The loop that steps all live requests together, and the handle through which one request is read.

All state lives on the event loop; only the computation of a step leaves it, for a single thread of its own. So there
are no locks, and a slot that is freed while a step runs is used again by a later step at the earliest.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal

import torch

from trtllm_engine.serve import scheduler
from trtllm_engine.serve.detokenize import Detokenizer
from trtllm_engine.serve.metrics import Metrics
from trtllm_engine.serve.runtime import Row, Runtime
from trtllm_engine.serve.sampling import Draw, sample
from trtllm_engine.serve.scheduler import Chunk, Scheduler
from trtllm_engine.serve.stop import StopMatcher

FinishReason = Literal["stop", "length"]

WAITING_PER_SLOT: Final = 16
"""Bound of the waiting queue. Beyond it a client is better served by another replica, or by trying again later."""

PREFILL_BUDGET: Final = {"cpu": 128, "cuda": 2048}
"""Prompt tokens per step: what running answers wait for, at most, between two of their tokens."""


class EngineDead(RuntimeError):
    """A step failed; nothing that was in the cache can be trusted and the process must be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one answer is chosen and when it ends."""

    max_tokens: int
    """At least 1; the caller caps it to what the context leaves."""
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    """Equal requests with equal seeds get equal answers; None: different ones."""
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of an answer; the last one carries the reason."""

    text: str
    finish_reason: FinishReason | None = None


class Generation:
    """One request inside the engine. Iterate once over its deltas; `cancel` when nobody reads any more."""

    def __init__(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        decode: Callable[[Sequence[int]], str],
        cancel: Callable[[Generation], None],
    ) -> None:
        self.params = params
        self.sequence = scheduler.Sequence(prompt)
        self.random = random.Random(params.seed)
        self.arrived = time.monotonic()
        self.last_token_at: float | None = None
        self.over = False
        self._cancel = cancel
        self._detokenizer = Detokenizer(decode)
        self._stop = StopMatcher(params.stop)
        self._deltas: asyncio.Queue[Delta | EngineDead | None] = asyncio.Queue()

    @property
    def prompt_tokens(self) -> int:
        return len(self.sequence.prompt)

    @property
    def completion_tokens(self) -> int:
        """Generated so far, the end-of-sequence token included."""
        return len(self.sequence.output)

    def cancel(self) -> None:
        """End the request now and free its slot; the iteration stops. Nothing happens if it is over."""
        self._cancel(self)

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self._read()

    async def _read(self) -> AsyncIterator[Delta]:
        while (item := await self._deltas.get()) is not None:
            if isinstance(item, EngineDead):
                raise item
            yield item

    def draw(self) -> Draw:
        """One random number per token, so the n-th token's luck depends on the seed and on n only."""
        uniform = self.random.random()
        return Draw(temperature=self.params.temperature, top_p=self.params.top_p, uniform=uniform)

    def show(self, token: int, *, end: bool) -> FinishReason | None:
        """Take the next token (`end`: it ends the sequence and has no text) and publish what it makes visible."""
        text = "" if end else self._stop.push(self._detokenizer.push(token))
        reason: FinishReason | None = None
        if end or self._stop.stopped:
            reason = "stop"
        elif self.completion_tokens >= self.params.max_tokens:
            reason = "length"
        if reason and not self._stop.stopped:
            text += self._stop.push(self._detokenizer.flush())
            reason = "stop" if self._stop.stopped else reason
            text += self._stop.flush()
        if text or reason:
            self._deltas.put_nowait(Delta(text, reason))
        return reason

    def close(self, error: EngineDead | None = None) -> None:
        """End the iteration, with `error` if there is one."""
        self.over = True
        self._deltas.put_nowait(error)


class Engine:
    """Takes prompts and answers them, many at a time; `run` must be running."""

    def __init__(
        self,
        runtime: Runtime,
        decode: Callable[[Sequence[int]], str],
        end_tokens: frozenset[int],
        metrics: Metrics,
        *,
        max_waiting: int | None = None,
        prefill_budget: int | None = None,
    ) -> None:
        self.runtime = runtime
        self._decode = decode
        self._end_tokens = end_tokens
        self._metrics = metrics
        self._scheduler = Scheduler(
            slots=runtime.max_batch_size,
            max_seq_len=runtime.max_seq_len,
            max_waiting=WAITING_PER_SLOT * runtime.max_batch_size if max_waiting is None else max_waiting,
            prefill_budget=prefill_budget or PREFILL_BUDGET[runtime.device],
        )
        self._generations: dict[scheduler.Sequence, Generation] = {}
        self._work = asyncio.Event()
        self._dead: EngineDead | None = None
        metrics.running = lambda: len(self._scheduler.running)
        metrics.waiting = lambda: len(self._scheduler.waiting)

    @property
    def live(self) -> int:
        """Requests that are not over."""
        return len(self._generations)

    def submit(self, prompt: Sequence[int], params: SamplingParams) -> Generation:
        """Start answering. Raises `scheduler.QueueFull`, or `EngineDead`.

        The prompt has at least one token and leaves room for `params.max_tokens` in the context.
        """
        if self._dead:
            raise self._dead
        generation = Generation(prompt, params, self._decode, self._abort)
        self._scheduler.add(generation.sequence)
        self._generations[generation.sequence] = generation
        self._work.set()
        return generation

    async def run(self) -> None:
        """Step until cancelled. Raises `EngineDead` after a failed step, when every request was told."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="engine") as thread:
            while True:
                step = self._scheduler.plan()
                if step is None:
                    self._work.clear()
                    await self._work.wait()
                    continue
                batches = [self._batch(chunks) for chunks in (step.prefill, step.decode) if chunks]
                try:
                    tokens = await loop.run_in_executor(thread, self._compute, batches)
                except Exception as error:
                    self._die(error)
                    raise EngineDead(str(error)) from error
                for chunk, token in zip([*step.prefill, *step.decode], tokens, strict=True):
                    self._accept(chunk, token)

    def _batch(self, chunks: Sequence[Chunk]) -> list[tuple[Row, Draw | None]]:
        """Rows that are computed together; only those with a draw choose a token."""
        batch: list[tuple[Row, Draw | None]] = []
        for chunk in chunks:
            slot = chunk.sequence.slot
            assert slot is not None, "a planned sequence has a slot"
            draw = self._generations[chunk.sequence].draw() if chunk.samples else None
            batch.append((Row(slot, chunk.sequence.computed, chunk.tokens), draw))
        return batch

    @torch.inference_mode()
    def _compute(self, batches: Sequence[Sequence[tuple[Row, Draw | None]]]) -> list[int | None]:
        """One token per row, None for rows in the middle of a prompt. Runs in the engine's thread."""
        tokens: list[int | None] = []
        for batch in batches:
            logits = self.runtime.forward([row for row, _ in batch])
            sampled = [i for i, (_, draw) in enumerate(batch) if draw]
            chosen: list[int | None] = [None] * len(batch)
            if sampled:
                draws = [draw for _, draw in batch if draw]
                for i, token in zip(sampled, sample(logits[sampled], draws), strict=True):
                    chosen[i] = token
            tokens += chosen
        return tokens

    def _accept(self, chunk: Chunk, token: int | None) -> None:
        generation = self._generations.get(chunk.sequence)
        if generation is None:  # cancelled while the step ran
            return
        self._scheduler.advance(chunk, token)
        if token is None:
            return
        now = time.monotonic()
        if generation.last_token_at is None:
            self._metrics.prompt_tokens.add(generation.prompt_tokens)
            self._metrics.time_to_first_token.observe(now - generation.arrived)
        else:
            self._metrics.inter_token.observe(now - generation.last_token_at)
        generation.last_token_at = now
        self._metrics.generation_tokens.add()
        if reason := generation.show(token, end=token in self._end_tokens):
            self._metrics.latency.observe(now - generation.arrived)
            self._end(generation, reason)

    def _abort(self, generation: Generation) -> None:
        if not generation.over:
            self._end(generation, "abort")

    def _end(self, generation: Generation, reason: str, error: EngineDead | None = None) -> None:
        self._scheduler.remove(generation.sequence)
        del self._generations[generation.sequence]
        self._metrics.finished.add(value=reason)
        generation.close(error)

    def _die(self, cause: Exception) -> None:
        self._dead = EngineDead(f"the engine stopped: {type(cause).__name__}: {cause}")
        for generation in list(self._generations.values()):
            self._end(generation, "error", self._dead)
