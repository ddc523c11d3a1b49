"""A spec that does not parse is judged as far as it can be read, and never for what cannot be."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.builders import a_deployment, a_deployment_object, an_engine, merged, smollm2_facts, some_defaults
from tests.unit.resolve.cases import a_node
from tests.unit.resolve.test_properties import BARE, NODES, SPECS
from trtllm_operator.api.deployment import LLMDeployment, LLMDeploymentSpec
from trtllm_operator.api.schema import Unread
from trtllm_operator.resolve.legible import Legible, legible, without
from trtllm_operator.resolve.review import UNHEARD, Review, review_object

Json = dict[str, Any]


def reviewed(**spec: Any) -> Review:
    return review_object(a_deployment(**spec), some_defaults())


def said(review: Review) -> list[tuple[str, str | None]]:
    return [(problem.path, problem.rule) for problem in review.problems]


def unread(**spec: Any) -> set[str]:
    part = legible(LLMDeploymentSpec, a_deployment_object(spec=spec)["spec"])
    assert part is not None
    return {path.removeprefix("spec.") for path in part.unread}


def test_one_answer_holds_what_the_schema_and_what_the_rules_refuse() -> None:
    found = reviewed(replicas=-1, trustRemoteCode=True)
    assert said(found) == [("spec.replicas", None), ("spec.trustRemoteCode", "OP-1")]
    assert found.cautions == (), "no rule wanted to know the number of replicas"


def test_a_rule_that_needs_what_is_broken_is_not_heard_and_that_is_said_once() -> None:
    """Seven ranks do not divide over nodes of two; whether there are seven nobody can say."""
    assert ("spec.tensorParallelSize", "PAR-6") in said(reviewed(tensorParallelSize=7, gpusPerNode=2))
    found = reviewed(tensorParallelSize="7", gpusPerNode=2, trustRemoteCode=True)
    assert said(found) == [("spec.tensorParallelSize", None), ("spec.trustRemoteCode", "OP-1")]
    assert found.cautions == (UNHEARD,)


def test_no_rule_asks_for_what_was_only_misspelt() -> None:
    found = reviewed(modelVolume=None, modelVolumes={"persistentVolumeClaim": {"claimName": "models"}})
    assert said(found) == [("spec.modelVolumes", None)]
    assert ("spec.modelVolume", "MDL-3") in said(reviewed(modelVolume=None, replicas=-1))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"tp_size": 2}, {"tensorParallelSize"}),
        ({"trust_remote_code": True}, {"trustRemoteCode"}),
        ({"replica": 2}, {"replicas"}),
        ({"computeCapability": "8.9"}, {"engine.target.computeCapability"}),
        ({"llm_args": {"tp_size": 2}}, {"tensorParallelSize"}),
        ({"colour": "blue"}, set()),
    ],
)
def test_an_unknown_key_may_be_meant_for_any_field_that_its_hint_could_name(written: Json, meant: set[str]) -> None:
    assert unread(**written) == meant


def test_a_section_without_what_it_must_have_is_unread_as_a_whole() -> None:
    assert "modelVolume" in unread(modelVolume={"persistentVolumeClaim": {"claimName": None}})
    assert "speculativeConfig" in unread(speculativeConfig={"maxDraftLen": 3})
    assert "scheduling.tolerations" in unread(scheduling={"tolerations": [{"key": 3}]})


def test_a_spec_without_a_readable_model_is_judged_beside_it() -> None:
    found = reviewed(model=3, trustRemoteCode=True)
    assert said(found) == [("spec.model", None), ("spec.trustRemoteCode", "OP-1")]
    assert found.cautions == (UNHEARD,), "where the model is was not looked at"


def test_what_is_no_spec_at_all_is_not_judged() -> None:
    obj = {**a_deployment_object(), "spec": [1]}
    found = review_object(LLMDeployment.of(obj), some_defaults())
    assert said(found) == [("spec", None)]
    assert found.cautions == (UNHEARD,)


def test_too_many_unknown_keys_are_not_compared_with_every_name() -> None:
    many = {"extra": {f"key{n}": n for n in range(100)}}
    assert legible(LLMDeploymentSpec, {"model": "a/b", **many}) is None
    assert reviewed(**many, trustRemoteCode=True).cautions == (UNHEARD,)


def test_an_engine_is_judged_in_part_too() -> None:
    found = review_object(an_engine(trustRemoteCode=True, dtype="float8"), some_defaults())
    assert said(found) == [("spec.dtype", None), ("spec.trustRemoteCode", "OP-1")]


def test_model_and_nodes_are_taken_into_account() -> None:
    obj = a_deployment(tensorParallelSize=2, replicas=-1)
    found = review_object(obj, some_defaults(), smollm2_facts(), [a_node()])
    assert ("spec.tensorParallelSize", "FIT-1") in said(found)
    elsewhere = a_deployment(tensorParallelSize=16, scheduling={"nodeSelector": 3})
    assert said(review_object(elsewhere, some_defaults(), None, [a_node()]))[:1] == [
        ("spec.scheduling.nodeSelector", None)
    ]


def test_a_field_that_was_taken_out_has_no_value_and_leaves_others_theirs() -> None:
    whole = a_deployment(engine={"toolchain": "torch"}).valid_spec
    part = without(whole, ["spec.engine.toolchain", "spec.nothing"])
    with pytest.raises(Unread):
        _ = part.engine.toolchain
    assert part.engine.storage == whole.engine.storage
    assert whole.engine.toolchain == "torch"
    values = Legible({"spec.a.b": 1, "spec.c": 2}, frozenset({"spec.a"}))
    assert dict(values) == {"spec.c": 2}
    for path in ("spec.a", "spec.a.b"):
        with pytest.raises(Unread):
            values.get(path)


def leaves(data: Json, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every key that is written."""
    found = []
    for key, value in data.items():
        found.append((*above, key))
        if isinstance(value, dict):
            found += leaves(value, (*above, key))
    return found


def broken(data: Json, path: tuple[str, ...], chance: random.Random) -> Json:
    """`data` with something wrong at the path: a value of no field's type, a misspelt name, or a wrong place."""
    first, *rest = path
    if rest:
        return {**data, first: broken(data[first], tuple(rest), chance)}
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in first)
    misspelt = chance.choice([snake, first[:-1] + "z", first + "s"])
    if chance.random() < 0.5 or misspelt == first:
        return {**data, first: [[None]]}
    return {(misspelt if key == first else key): value for key, value in data.items()}


@settings(max_examples=150, deadline=None)
@given(SPECS, st.none() | st.just(smollm2_facts()), NODES, st.integers(0, 2**32))
def test_what_is_broken_makes_no_other_error(data: Json, facts: Any, nodes: Any, seed: int) -> None:
    """Whatever the rules say of the broken spec, they say of the spec that was meant."""
    good, chance = merged(BARE, data), random.Random(seed)
    bad = broken(good, chance.choice(leaves(good)), chance)
    meant, seen = (LLMDeployment.of({**a_deployment_object(), "spec": spec}) for spec in (good, bad))
    assume(seen.spec is None)
    right = review_object(meant, some_defaults(), facts, nodes).problems
    found = review_object(seen, some_defaults(), facts, nodes)
    assert [problem for problem in found.problems if problem.rule and problem not in right] == []
    assert set(seen.problems) <= set(found.problems)
