"""Conditions move in time only when their status does."""

from datetime import timedelta

from tests.builders import NOW
from trtllm_operator.api.conditions import Condition, Reason, drop_condition, find_condition, set_condition

LATER = NOW + timedelta(minutes=5)


def ready(status: bool | None, reason: Reason, *before: Condition) -> tuple[Condition, ...]:
    now = LATER if before else NOW
    return set_condition(before, "Ready", status, reason, "because", 3, now)


def test_a_new_reason_is_no_transition() -> None:
    first = ready(False, Reason.FETCHING_MODEL)
    (second,) = ready(False, Reason.BUILDING_ENGINE, *first)

    assert (second.reason, second.last_transition_time) == ("BuildingEngine", NOW)


def test_a_new_status_is_a_transition() -> None:
    first = ready(False, Reason.BUILDING_ENGINE)
    (second,) = ready(True, Reason.AS_EXPECTED, *first)

    assert (second.status, second.last_transition_time) == ("True", LATER)


def test_a_condition_keeps_its_place() -> None:
    both = set_condition(ready(None, Reason.ACCEPTED), "SpecValid", True, Reason.ACCEPTED, "", 3, NOW)

    assert [c.type for c in ready(True, Reason.AS_EXPECTED, *both)] == ["Ready", "SpecValid"]
    assert [c.type for c in drop_condition(both, "Ready")] == ["SpecValid"]
    assert find_condition(both, "Stalled") is None


def test_what_is_not_known_is_unknown() -> None:
    (condition,) = ready(None, Reason.ACCEPTED)

    assert condition.status == "Unknown"


def test_every_reason_has_a_meaning_and_is_one_word() -> None:
    assert all(reason.isalnum() and reason.meaning.endswith(".") for reason in Reason)
    assert Reason("BuildFailed") is Reason.BUILD_FAILED
