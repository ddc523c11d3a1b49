"""Ranks are spread over as few pods as the nodes allow, all of one size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_operator.resolve.layout import Layout, lay_out, nearest


@pytest.mark.parametrize(
    ("world", "per_node", "pods", "each"),
    [(1, 8, 1, 1), (8, 8, 1, 8), (12, 8, 2, 6), (16, 8, 2, 8), (16, None, 1, 16), (10, 8, 2, 5)],
)
def test_pods_of_one_size(world: int, per_node: int | None, pods: int, each: int) -> None:
    assert lay_out(world, per_node) == Layout(pods=pods, gpus_per_pod=each)


def test_what_does_not_divide_has_neighbours_that_do() -> None:
    assert lay_out(9, 8) is None
    assert nearest(9, 8) == [8, 10, 12]


@given(st.integers(1, 512), st.integers(1, 64))
def test_a_layout_holds_every_rank_and_no_node_is_overfull(world: int, per_node: int) -> None:
    layout = lay_out(world, per_node)

    if layout is not None:
        assert layout.pods * layout.gpus_per_pod == world
        assert layout.gpus_per_pod <= per_node
    else:
        assert all(lay_out(ranks, per_node) for ranks in nearest(world, per_node))
        assert len(nearest(world, per_node)) == 3
