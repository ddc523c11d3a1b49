"""What is wrong with a spec, what is doubtful, and what arbitration changed: one list each, for all who show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trtllm_engine.contract import Message

from .conditions import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem(Message):
    """One refusal, at the field as the user wrote it."""

    path: str
    """For example `spec.buildConfig.maxSeqLen`."""
    code: Reason
    message: str
    """The offending value and the allowed ones."""
    hint: str | None = None
    """What to do."""
    rule: str | None = None
    """Id of the rule (`docs/reference/rules.md`) that refuses; None for the schema's own findings."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" + (f"; {self.hint}" if self.hint else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment(Message):
    """A value that arbitration chose. `from_value` None: the user left the field out."""

    path: str
    from_value: str | None = None
    to_value: str
    reason: str
    rule: str | None = None
    """Id of the rule that made the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution(Message):
    """Something that is allowed and probably not what the user wants; shown as a warning, changes nothing."""

    path: str
    message: str
    """What will happen, and the remedy."""
    rule: str | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Refused(ValueError):
    """A spec that cannot be done, with every problem that is known at this point."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        if not problems:
            raise ValueError("a refusal needs at least one problem")
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)

    @property
    def reason(self) -> Reason:
        """Of the first problem: checks go from what the user wrote to what follows from it."""
        return self.problems[0].code

    def sentence(self) -> str:
        """All problems in one line."""
        return "; ".join(map(str, self.problems))
