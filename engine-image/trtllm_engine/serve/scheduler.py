"""Continuous batching, decided: which sequences compute what in the next step. Pure, knows neither time nor tensors.

Each step has two parts. *Prefill* gives the oldest prompts their next chunk within a token budget, so that a long
prompt delays the running answers by one chunk at most. *Decode* gives every sequence whose prompt is computed its
next token. A sequence owns one cache slot from its admission to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field


class QueueFull(Exception):
    """There are not as many free slots and places in the waiting queue."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and its growing answer."""

    prompt: Seq[int]
    """At least one token."""
    output: list[int] = field(default_factory=list)
    computed: int = 0
    """Tokens whose keys and values are in the cache."""
    slot: int | None = None
    """None: waiting, or over."""

    @property
    def prefilling(self) -> bool:
        return self.computed < len(self.prompt)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The tokens of one sequence in a step: `length` tokens from `sequence.computed` on."""

    sequence: Sequence
    length: int

    @property
    def tokens(self) -> Seq[int]:
        sequence, start = self.sequence, self.sequence.computed
        return sequence.prompt[start : start + self.length] if sequence.prefilling else sequence.output[-1:]

    @property
    def samples(self) -> bool:
        """Whether the logits after this chunk choose a token: not in the middle of a prompt."""
        return self.sequence.computed + self.length >= len(self.sequence.prompt)


@dataclass(frozen=True, slots=True)
class Step:
    """What to compute next; a sequence is in at most one of the two."""

    prefill: Seq[Chunk]
    decode: Seq[Chunk]


class Scheduler:
    """Owner of the slots and of the waiting queue.

    slots: cache rows. max_seq_len: tokens per row. max_waiting: sequences that may wait for a slot.
    prefill_budget: tokens, padding included, of the prefill part of one step.
    """

    def __init__(self, *, slots: int, max_seq_len: int, max_waiting: int, prefill_budget: int) -> None:
        self._free = list(reversed(range(slots)))
        self._max_seq_len = max_seq_len
        self._max_waiting = max_waiting
        self._prefill_budget = prefill_budget
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        """In order of admission."""

    def add(self, *sequences: Sequence) -> None:
        """Queue sequences, all or none. Raises `QueueFull`."""
        if len(self.waiting) + len(sequences) > self._max_waiting + len(self._free):
            raise QueueFull
        self.waiting.extend(sequences)

    def remove(self, sequence: Sequence) -> None:
        """End a sequence wherever it is; its slot is free for the next step. Ending it twice changes nothing."""
        if sequence.slot is not None:
            self.running.remove(sequence)
            self._free.append(sequence.slot)
            sequence.slot = None
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def plan(self) -> Step | None:
        """Admit what fits and choose the next step; None: nothing to do."""
        while self.waiting and self._free:
            sequence = self.waiting.popleft()
            sequence.slot = self._free.pop()
            self.running.append(sequence)
        step = Step(
            prefill=self._prefill([s for s in self.running if s.prefilling]),
            decode=[Chunk(s, 1) for s in self.running if not s.prefilling],
        )
        return step if step.prefill or step.decode else None

    def advance(self, chunk: Chunk, token: int | None) -> None:
        """Record that a chunk was computed and, if it `samples`, the chosen token."""
        chunk.sequence.computed += chunk.length
        if token is not None:
            chunk.sequence.output.append(token)

    def _prefill(self, prompts: Seq[Sequence]) -> list[Chunk]:
        """The oldest prompt's next chunk, and after it those that still fit once all are padded to the longest."""
        chunks: list[Chunk] = []
        width = 0
        for sequence in prompts:
            length = min(len(sequence.prompt) - sequence.computed, self._prefill_budget)
            padded = max(width, length)
            ends = max(c.sequence.computed for c in [*chunks, Chunk(sequence, length)]) + padded
            if chunks and (padded * (len(chunks) + 1) > self._prefill_budget or ends > self._max_seq_len):
                continue
            chunks.append(Chunk(sequence, length))
            width = padded
        return chunks
