"""Facts before functions before performance; what the user wrote before all of them, or a refusal that names both."""

from hypothesis import given
from hypothesis import strategies as st

from trtllm_operator.resolve.arbitrator import Claim, Settlement, Strength, settle

DEFAULTS = {"a": True, "b": True, "c": 1}


def a_claim(name: str, wants: dict[str, object], **fields: object) -> Claim:
    return Claim(**{"rule": name, "path": name, "wants": wants, "why": f"{name} says so", **fields})  # type: ignore[arg-type]


def told(result: Settlement) -> dict[str, tuple[str | None, str, str | None]]:
    return {a.path: (a.from_value, a.to_value, a.rule) for a in result.adjustments}


def test_core_1_a_fact_that_the_spec_contradicts_is_refused_at_the_field() -> None:
    fact = a_claim("FACT", {"a": False}, strength=Strength.FACT)

    result = settle({"a": True}, DEFAULTS, [fact])

    (problem,) = result.problems
    assert (problem.path, problem.rule) == ("a", "FACT")
    assert problem.message == "false is what a must be (FACT says so), and the spec says true there"


def test_core_1_two_facts_that_contradict_each_other_are_refused() -> None:
    facts = [a_claim(name, {"a": value}, strength=Strength.FACT) for name, value in (("F", False), ("G", True))]

    assert [problem.rule for problem in settle({}, DEFAULTS, facts).problems] == ["G"]


def test_core_2_two_functions_that_the_user_asked_for_are_refused_with_both_named() -> None:
    claims = [a_claim("x", {"a": True}, asked="on"), a_claim("y", {"a": False}, asked=4)]

    (problem,) = settle({}, DEFAULTS, claims).problems
    assert problem.path == "y"
    assert str(problem) == (
        "y: 4 needs a to be false (y says so), and x: on needs it to be true: x says so; remove one of y and x"
    )


def test_core_2_a_default_gives_way_to_what_the_user_asked_for_whatever_the_order() -> None:
    reuse = a_claim("reuse", {"a": True, "b": True}, fallback={"b": False})
    beams = a_claim("beams", {"a": False}, asked=4)

    for claims in ([reuse, beams], [beams, reuse]):
        result = settle({}, DEFAULTS, claims)
        assert result.problems == ()
        assert told(result) == {"a": ("true (default)", "false", "beams"), "b": ("true (default)", "false", "beams")}


def test_core_2_a_fact_beats_a_function() -> None:
    fact = a_claim("fact", {"a": False}, strength=Strength.FACT)

    lost = settle({}, DEFAULTS, [a_claim("x", {"a": True}, fallback={"b": False}), fact])
    assert lost.values == {"a": False, "b": False}
    refused = settle({}, DEFAULTS, [a_claim("x", {"a": True}, asked=True), fact])
    assert [problem.path for problem in refused.problems] == ["x"]


def test_core_3_a_function_beats_performance_and_the_first_performance_claim_wins() -> None:
    fast = [a_claim(name, {"a": value}, strength=Strength.PERFORMANCE) for name, value in (("p", False), ("q", True))]

    assert settle({}, DEFAULTS, fast).values == {"a": False}
    assert settle({}, DEFAULTS, [*fast, a_claim("f", {"a": True})]).values == {"a": True}


def test_core_3_a_lost_feature_leaves_nothing_behind_and_all_its_fallbacks_are_taken() -> None:
    """Q5, Q6: also when its first option alone would have been free, and when the conflict comes last."""
    function = a_claim("f", {"b": False}, asked=True)
    feature = a_claim(
        "p", {"a": False, "c": 2, "b": True}, strength=Strength.PERFORMANCE, fallback={"d": False, "e": 0}
    )

    result = settle({}, DEFAULTS, [feature, function])

    assert result.values == {"b": False, "d": False, "e": 0}
    assert set(told(result)) == {"b", "d", "e"}


def test_core_4_only_what_is_claimed_or_written_is_decided() -> None:
    assert settle({"c": 7}, DEFAULTS, []) == Settlement(values={"c": 7})


def test_a_feature_that_the_user_asked_for_and_that_cannot_be_is_refused_not_dropped() -> None:
    chunked = a_claim("chunked", {"a": True}, asked=True, strength=Strength.PERFORMANCE, fallback={"chunked": False})

    (problem,) = settle({"a": False}, DEFAULTS, [chunked]).problems
    assert problem.hint == "remove one of chunked and a"


def test_a_default_gives_way_to_what_the_user_wrote() -> None:
    result = settle({"a": False}, DEFAULTS, [a_claim("reuse", {"a": True}, fallback={"b": False})])

    assert result.problems == ()
    assert told(result) == {"b": ("true (default)", "false", "reuse")}


OPTIONS = st.sampled_from("abcde")
VALUES = st.booleans() | st.integers(0, 3)
CLAIMS = st.builds(
    a_claim,
    st.sampled_from(["x", "y", "z"]),
    st.dictionaries(OPTIONS, VALUES, min_size=1),
    asked=st.none() | st.integers(1, 9),
    strength=st.sampled_from(Strength),
    fallback=st.dictionaries(OPTIONS, VALUES),
)


@given(st.dictionaries(OPTIONS, VALUES), st.lists(CLAIMS, max_size=6))
def test_whatever_is_claimed_what_the_user_wrote_stays(written: dict[str, int], claims: list[Claim]) -> None:
    result = settle(written, DEFAULTS, claims)

    assert {path: result.values[path] for path in written} == written
    assert not {adjustment.path for adjustment in result.adjustments} & set(written)
    assert result == settle(written, DEFAULTS, claims)


@given(st.lists(CLAIMS, max_size=6))
def test_a_claim_is_kept_whole_or_not_at_all(claims: list[Claim]) -> None:
    result = settle({}, {}, claims)

    kept = [c for c in claims if all(result.values.get(path) == value for path, value in c.wants.items())]
    explained = {path for c in kept for path in c.wants} | {path for c in claims for path in c.fallback}
    assert set(result.values) <= explained
