"""The planner takes the layout with the least communication that divides the model and fits."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import smollm2_facts
from tests.unit.resolve.cases import GIB, llama_8b, mixtral
from trtllm_engine.contract import Mapping, ModelFacts
from trtllm_operator.resolve.layout import lay_out
from trtllm_operator.resolve.memory import Gpu, Load, table
from trtllm_operator.resolve.parallel import crosses_nodes, divides, layouts, plan


def anything(_: Mapping) -> bool:
    return True


def on(memory: int, facts: ModelFacts) -> Mapping | None:
    """The layout for one GPU size, with as few ranks as possible."""
    gpu = Gpu(product="gpu", memory_bytes=memory, headroom=0.1)
    load = Load(mapping=Mapping(), dtype="bfloat16", sequences=1, length=8192, step_tokens=8192)

    def fits(mapping: Mapping) -> bool:
        return bool(table(facts, dataclasses.replace(load, mapping=mapping), gpu).fits)

    return plan(facts, None, 8, fits, most=64)


@pytest.mark.parametrize(
    ("world", "per_node", "mapping"),
    [
        (1, 8, Mapping()),
        (8, 8, Mapping(tp=8)),
        (16, 8, Mapping(tp=8, pp=2)),
        (8, 4, Mapping(tp=4, pp=2)),
        (4, None, Mapping(tp=4)),
        (32, 8, Mapping(tp=8, pp=4)),
        (12, 8, Mapping(tp=2, pp=6)),
    ],
)
def test_tensor_ranks_stay_inside_a_node_and_stages_lie_across(
    world: int, per_node: int | None, mapping: Mapping
) -> None:
    assert plan(llama_8b(), world, per_node, anything, most=64) == mapping


def test_nine_heads_are_split_by_three() -> None:
    assert plan(smollm2_facts(), 3, 8, anything, most=64) == Mapping(tp=3)
    assert plan(smollm2_facts(), 2, 8, anything, most=64) == Mapping(pp=2)


def test_ranks_that_nodes_cannot_hold_have_no_layout() -> None:
    assert plan(llama_8b(), 9, 8, anything, most=64) is None


def test_as_few_ranks_as_fit() -> None:
    assert on(80 * GIB, llama_8b()) == Mapping()
    assert on(80 * GIB, mixtral()) == Mapping(tp=2)
    assert on(24 * GIB, mixtral()) == Mapping(tp=2, pp=3)
    assert on(2 * GIB, mixtral()) is None


def test_a_layout_that_does_not_fit_gives_way_to_one_that_does() -> None:
    assert plan(llama_8b(), 8, 8, lambda mapping: mapping.tp <= 2, most=64) == Mapping(tp=2, pp=4)


@given(world=st.integers(1, 64), per_node=st.none() | st.integers(1, 16))
def test_every_layout_divides_the_model_and_the_nodes(world: int, per_node: int | None) -> None:
    found = layouts(llama_8b(), world, per_node)

    assert all(m.world_size == world and divides(llama_8b(), m) for m in found)
    assert not found or lay_out(world, per_node) is not None
    crossing = [crosses_nodes(m, per_node) for m in found]
    assert crossing == sorted(crossing), "whatever stays inside a node comes first"
