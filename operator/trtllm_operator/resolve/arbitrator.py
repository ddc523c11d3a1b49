"""Who wins when two wishes meet at one option: the core of arbitration. It knows no option by name.

What the user wrote is never overridden: it holds, or the spec is refused with both sides named. Among the rest a
fact beats a function, a function beats performance, and the first of equals wins. A wish that loses is dropped
whole, and the options of its fallback are taken in its place.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..api.conditions import Reason
from ..api.problems import Adjustment, Problem

Value = bool | int | float | str | None
Options = Mapping[str, Value]
"""Values by path, for example `spec.kvCacheConfig.enableBlockReuse`."""


class Strength(enum.IntEnum):
    """What beats what; the smaller number wins."""

    FACT = 0
    """Something that cannot be otherwise: what a finished engine is, what the GPU can do."""
    FUNCTION = 1
    """A feature gives wrong results, or none, without its options."""
    PERFORMANCE = 2
    """A feature only makes it faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one feature wants of the options."""

    rule: str
    path: str
    """The field that turns the feature on."""
    asked: Value = None
    """What the user wrote there; None: it is on by default, or follows from a fact."""
    wants: Options
    strength: Strength = Strength.FUNCTION
    why: str
    """Why it wants them, to be read after the new value."""
    fallback: Options = field(default_factory=dict)
    """What the options become when the feature is lost."""

    @property
    def standing(self) -> tuple[bool, int]:
        """Facts first, then what the user asked for, then what is only a default; functions before performance."""
        return (self.strength is not Strength.FACT and self.asked is None, self.strength)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What the options come to."""

    values: Options
    """Of every option that somebody claimed or wrote."""
    adjustments: tuple[Adjustment, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Holder:
    value: Value
    claim: Claim


def settle(written: Options, defaults: Options, claims: Sequence[Claim]) -> Settlement:
    """Decide every claimed option; deterministic, and independent of the order of options inside a claim."""
    held: dict[str, _Holder] = {}
    problems: list[Problem] = []
    for claim in sorted(claims, key=lambda claim: claim.standing):
        conflicts = list(_conflicts(claim, written, held))
        if not conflicts:
            held |= {path: _Holder(value, claim) for path, value in claim.wants.items() if path not in held}
        elif claim.asked is not None or claim.strength is Strength.FACT:
            problems += conflicts
        else:
            free = {path: v for path, v in claim.fallback.items() if path not in written and path not in held}
            held |= {path: _Holder(value, _lost(claim, path, value, held, written)) for path, value in free.items()}
    return Settlement(
        values={**written, **{path: holder.value for path, holder in held.items() if path not in written}},
        adjustments=tuple(_adjustments(written, defaults, held)),
        problems=tuple(problems),
    )


def shown(value: Value) -> str:
    """As it is written in YAML."""
    return value if isinstance(value, str) else json.dumps(value)


def _conflicts(claim: Claim, written: Options, held: Mapping[str, _Holder]) -> Iterator[Problem]:
    for path, value in claim.wants.items():
        if path in written and written[path] != value:
            hint = f"remove {path}" if claim.asked is None else f"remove one of {claim.path} and {path}"
            yield _problem(claim, path, value, f"and the spec says {shown(written[path])} there", hint)
        elif path in held and held[path].value != value:
            other = held[path].claim
            against = f"and {_named(other)} needs it to be {shown(held[path].value)}: {other.why}"
            hint = f"remove {claim.path}" if other.asked is None else f"remove one of {claim.path} and {other.path}"
            yield _problem(claim, path, value, against, hint)


def _problem(claim: Claim, path: str, value: Value, against: str, hint: str) -> Problem:
    needs = f"{shown(value)} is what {path} must be" if claim.asked is None else f"{shown(claim.asked)} needs {path}"
    text = f"{needs} ({claim.why})" if claim.asked is None else f"{needs} to be {shown(value)} ({claim.why})"
    where = path if claim.asked is None else claim.path
    return Problem(path=where, code=Reason.INVALID_SPEC, message=f"{text}, {against}", hint=hint, rule=claim.rule)


def _named(claim: Claim) -> str:
    return claim.path if claim.asked is None else f"{claim.path}: {shown(claim.asked)}"


def _lost(claim: Claim, path: str, value: Value, held: Mapping[str, _Holder], written: Options) -> Claim:
    """The claim of the fallback: it says who was stronger."""
    for option, wanted in claim.wants.items():
        if option in written and written[option] != wanted:
            why, rule = (
                f"it needs {option} to be {shown(wanted)}, and the spec says {shown(written[option])}",
                claim.rule,
            )
            break
        if option in held and held[option].value != wanted:
            winner = held[option].claim
            why, rule = f"{_named(winner)} goes before it: {winner.why}", winner.rule
            break
    else:
        raise ValueError("a claim without a conflict is not lost")
    return Claim(rule=rule, path=claim.path, wants={path: value}, strength=claim.strength, why=why)


def _adjustments(written: Options, defaults: Options, held: Mapping[str, _Holder]) -> Iterator[Adjustment]:
    for path, holder in held.items():
        before = defaults.get(path)
        if path not in written and holder.value != before:
            yield Adjustment(
                path=path,
                from_value=None if before is None else f"{shown(before)} (default)",
                to_value=shown(holder.value),
                reason=holder.claim.why,
                rule=holder.claim.rule,
            )
