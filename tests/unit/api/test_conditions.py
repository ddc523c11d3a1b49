"""Conditions move in time only when their status does, and every reason is explained as it is used."""

import ast
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from tests.builders import NOW
from trtllm_operator.api import names
from trtllm_operator.api.conditions import Condition, Reason, drop_condition, find_condition, set_condition
from trtllm_operator.api.guidance import GUIDE, NOT_PRODUCED, Actor, Shown, Situation

LATER = NOW + timedelta(minutes=5)
ROOT = Path(__file__).parents[3]
SOURCES = [
    file
    for part in ("decide", "resolve", "cluster")
    for file in (ROOT / "operator/trtllm_operator" / part).rglob("*.py")
]
RECORDED = sorted((ROOT / "gitops/argocd").rglob("testdata/*.yaml"))

COURSES = {"SETTLED": Shown.SETTLED, "MOVING": Shown.MOVING, "STALLED": Shown.STALLED}
NAMED = {
    "unschedulable_reason": Shown.MOVING,
    "failure": Shown.STALLED,
    "judge": Shown.STALLED,
    "_reason": Shown.STALLED,
    "_general": Shown.STALLED,
}
"""Functions that choose a reason before they say more, and how what they choose is shown."""


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


# ---- reasons: all are explained, and explained as the decisions use them


def chosen(node: ast.AST | None) -> Iterator[Reason]:
    """Reasons that an expression or a block makes; those that it compares with, or looks up, are not made there."""
    if node is None or isinstance(node, ast.Compare | ast.MatchValue):
        return
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason":
        yield Reason[node.attr]
    for field, value in ast.iter_fields(node):
        if isinstance(node, ast.Dict) and field == "keys":
            continue
        for child in value if isinstance(value, list) else [value]:
            yield from chosen(child) if isinstance(child, ast.AST) else ()


def shown_by(call: ast.Call) -> Iterator[tuple[Reason, Shown]]:
    """What one call says about the state that goes with a reason; nothing, where both are handed through."""
    said = {keyword.arg: keyword.value for keyword in call.keywords}
    match call.func.id if isinstance(call.func, ast.Name) else None:
        case "_moving":
            course, reason = "MOVING", call.args[0]
        case "Failure" if "reason" in said:
            course, reason = "STALLED", said["reason"]
        case "Problem":
            course, reason = "STALLED", said["code"]
        case "Verdict":
            course, reason = ast.unparse(said["course"]), said["reason"]
        case "_refusal":
            course, reason = ast.unparse(call.args[0]), call.args[1]
        case _:
            return
    yield from ((one, COURSES[course.removeprefix("Course.")]) for one in chosen(reason))


def uses() -> Iterator[tuple[Reason, Shown]]:
    """How the decisions show each reason."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                yield from shown_by(node)
            elif isinstance(node, ast.FunctionDef) and node.name in NAMED:
                yield from ((reason, NAMED[node.name]) for reason in chosen(node))


def test_every_reason_is_explained_exactly_once() -> None:
    assert set(GUIDE) | set(NOT_PRODUCED) == set(Reason)
    assert not set(GUIDE) & set(NOT_PRODUCED)


def test_the_reasons_that_are_explained_are_those_that_are_produced() -> None:
    produced = {reason for file in SOURCES for reason in chosen(ast.parse(file.read_text()))}
    assert produced == set(GUIDE)


def test_a_reason_is_shown_as_the_page_says() -> None:
    told = {(reason, shown) for reason, guidance in GUIDE.items() for shown in guidance.shown}
    assert set(uses()) == told - {(Reason.ACCEPTED, Shown.VALID)}


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: "/".join(file.parts[-3::2]))
def test_what_a_real_control_plane_recorded_is_shown_as_the_page_says(file: Path) -> None:
    status = yaml.safe_load(file.read_text()).get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    if not conditions:
        return
    ready = conditions["Ready"]
    course = next((kind for kind in ("Reconciling", "Stalled") if kind in conditions), None)
    sign = Shown.SETTLED if course is None else Shown(f"Ready=False, {course}=True")
    assert (ready["status"] == "True") == (course is None)
    assert sign in GUIDE[Reason(ready["reason"])].shown


def test_whoever_must_act_is_told_what_to_look_at_and_what_to_do() -> None:
    for reason, guidance in GUIDE.items():
        assert guidance.remedy.endswith("."), reason
        assert 1 <= len(guidance.look) <= 2, reason
        if Shown.STALLED in guidance.shown:
            assert guidance.actor is not Actor.NOBODY, reason
        assert (guidance.situation in (Situation.REFUSED, Situation.FAILED)) == (Shown.STALLED in guidance.shown), (
            reason
        )


def test_labels_in_commands_are_those_that_children_carry() -> None:
    commands = " ".join(command for guidance in GUIDE.values() for command in (*guidance.look, guidance.remedy))
    used = set(re.findall(rf"{re.escape(names.GROUP)}/[a-z-]+", commands))
    assert used == {names.DEPLOYMENT_LABEL, names.ROLE_LABEL, names.RETRY_ANNOTATION}
