"""The loop that steps all live requests together.

All state lives on the event loop; only the computation of a step leaves it, for a single thread of its own. So there
are no locks, and a slot that is freed while a step runs is used again by a later step at the earliest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import torch

from trtllm_engine.serve.choice import Choice, Chosen, choose
from trtllm_engine.serve.generation import EngineDead, Generation, Reply, RequestTimeout, SamplingParams
from trtllm_engine.serve.metrics import Metrics
from trtllm_engine.serve.runtime import Row, Runtime
from trtllm_engine.serve.scheduler import Chunk, Scheduler
from trtllm_engine.serve.scheduler import Sequence as TokenSequence
from trtllm_engine.serve.shaping import Bias, Penalizer, Shaper

WAITING_PER_SLOT: Final = 16
"""Bound of the waiting queue. Beyond it a client is better served by another replica, or by trying again later."""

PREFILL_BUDGET: Final = {"cpu": 128, "cuda": 2048}
"""Prompt tokens per step: what running answers wait for, at most, between two of their tokens."""

REQUEST_SECONDS: Final = 3600.0
"""No request lives longer, whatever its client asked for."""


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
        waiting = WAITING_PER_SLOT * runtime.max_batch_size if max_waiting is None else max_waiting
        self.capacity = runtime.max_batch_size + waiting
        """Answers that can be live at once, waiting ones included."""
        self._scheduler = Scheduler(
            slots=runtime.max_batch_size,
            max_seq_len=runtime.max_seq_len,
            max_waiting=waiting,
            prefill_budget=prefill_budget or PREFILL_BUDGET[runtime.device],
        )
        self._generations: dict[TokenSequence, Generation] = {}
        self._work = asyncio.Event()
        self._dead: EngineDead | None = None
        metrics.running = lambda: len(self._scheduler.running)
        metrics.waiting = lambda: len(self._scheduler.waiting)

    @property
    def live(self) -> int:
        """Answers that are not over."""
        return len(self._generations)

    def submit(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        n: int = 1,
        grammar: Callable[[], Shaper] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Reply:
        """Start `n` answers to each prompt: those to the first come first in `Reply.generations`.

        Each prompt has at least one token and leaves room for `params.max_tokens` in the context. `grammar` makes what
        restricts one answer. After `seconds` the reply ends with `RequestTimeout`.

        Raises `scheduler.QueueFull` when not all of them find room, or `EngineDead`.
        """
        if self._dead:
            raise self._dead
        reply = Reply(self._abort)
        jobs = [prompt for prompt in prompts for _ in range(n)]
        made = [
            Generation(prompt, params, self._decode, self._shapers(prompt, params, grammar), reply, index)
            for index, prompt in enumerate(jobs)
        ]
        self._scheduler.add(*[generation.sequence for generation in made])
        self._generations |= {generation.sequence: generation for generation in made}
        reply.generations, reply.live = made, len(made)
        reply.expiry = asyncio.get_running_loop().call_later(seconds, self._expire, reply, seconds)
        self._work.set()
        return reply

    def _shapers(
        self, prompt: Sequence[int], params: SamplingParams, grammar: Callable[[], Shaper] | None
    ) -> Sequence[Shaper]:
        """The grammar last: nothing may make possible again what it forbids."""
        device = self.runtime.device
        shapers: list[Shaper] = []
        if not params.penalties.neutral:
            shapers.append(Penalizer(params.penalties, prompt, self.runtime.vocab_size, device))
        if params.bias:
            shapers.append(Bias(dict(params.bias), device))
        if grammar:
            shapers.append(grammar())
        return shapers

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
                    chosen = await loop.run_in_executor(thread, self._compute, batches)
                except Exception as error:
                    self._die(error)
                    raise EngineDead(str(error)) from error
                for chunk, token in zip([*step.prefill, *step.decode], chosen, strict=True):
                    self._accept(chunk, token)

    def _batch(self, chunks: Sequence[Chunk]) -> list[tuple[Row, Choice | None]]:
        """Rows that are computed together; only those with a choice get a token."""
        batch: list[tuple[Row, Choice | None]] = []
        for chunk in chunks:
            slot = chunk.sequence.slot
            assert slot is not None, "a planned sequence has a slot"
            choice = self._generations[chunk.sequence].choice() if chunk.samples else None
            batch.append((Row(slot, chunk.sequence.computed, chunk.tokens), choice))
        return batch

    @torch.inference_mode()
    def _compute(self, batches: Sequence[Sequence[tuple[Row, Choice | None]]]) -> list[Chosen | None]:
        """One token per row, None for rows in the middle of a prompt. Runs in the engine's thread."""
        tokens: list[Chosen | None] = []
        for batch in batches:
            logits = self.runtime.forward([row for row, _ in batch])
            sampled = [i for i, (_, choice) in enumerate(batch) if choice]
            chosen: list[Chosen | None] = [None] * len(batch)
            if sampled:
                picked = logits if len(sampled) == len(batch) else logits[sampled]
                for i, token in zip(sampled, choose(picked, [c for _, c in batch if c]), strict=True):
                    chosen[i] = token
            tokens += chosen
        return tokens

    def _accept(self, chunk: Chunk, chosen: Chosen | None) -> None:
        generation = self._generations.get(chunk.sequence)
        if generation is None:  # cancelled while the step ran
            return
        self._scheduler.advance(chunk, None if chosen is None else chosen.token)
        if chosen is None:
            return
        now = time.monotonic()
        if generation.last_token_at is None:
            self._metrics.prompt_tokens.add(generation.prompt_tokens)
            self._metrics.time_to_first_token.observe(now - generation.arrived)
        else:
            self._metrics.inter_token.observe(now - generation.last_token_at)
        generation.last_token_at = now
        self._metrics.generation_tokens.add()
        if reason := generation.show(chosen, end=chosen.token in self._end_tokens):
            self._metrics.latency.observe(now - generation.arrived)
            self._end(generation, reason)

    def _abort(self, reply: Reply) -> None:
        self._end_all(reply.generations, "abort")

    def _expire(self, reply: Reply, seconds: float) -> None:
        self._end_all(reply.generations, "timeout", RequestTimeout(f"the request was not over after {seconds:g} s"))

    def _end_all(
        self, generations: Sequence[Generation], reason: str, error: EngineDead | RequestTimeout | None = None
    ) -> None:
        for generation in generations:
            if generation.sequence in self._generations:
                self._end(generation, reason, error)

    def _end(self, generation: Generation, reason: str, error: EngineDead | RequestTimeout | None = None) -> None:
        self._scheduler.remove(generation.sequence)
        del self._generations[generation.sequence]
        self._metrics.finished.add(value=reason)
        generation.reply.close(error)

    def _die(self, cause: Exception) -> None:
        self._dead = EngineDead(f"the engine stopped: {type(cause).__name__}: {cause}")
        self._end_all(list(self._generations.values()), "error", self._dead)
