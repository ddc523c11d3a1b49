"""A pod knows from its environment which ranks it holds."""

from __future__ import annotations

import pytest

from trtllm_engine.contract import ExitCode, Mapping
from trtllm_engine.failure import Failure
from trtllm_engine.serve.placement import read_placement

TWO_PODS = {"LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "m-0-0.m"}


def test_a_model_of_one_rank_needs_nothing() -> None:
    placement = read_placement(Mapping(), {})
    assert (placement.ranks, placement.leads, placement.leader_host) == (range(1), True, "127.0.0.1")


def test_without_more_words_all_ranks_are_in_one_pod() -> None:
    assert read_placement(Mapping(tp=2, pp=2), {}).ranks == range(4)


def test_rank_r_is_in_pod_r_by_ranks_per_pod() -> None:
    first, second = [read_placement(Mapping(tp=4, pp=2), {**TWO_PODS, "GROUP_RANK": pod}) for pod in ("0", "1")]
    assert (first.ranks, first.leads) == (range(4), True)
    assert (second.ranks, second.leads) == (range(4, 8), False)
    assert [second.local(rank) for rank in second.ranks] == [0, 1, 2, 3]
    assert (second.leader_host, second.leader_port) == ("m-0-0.m", 29500)


@pytest.mark.parametrize(
    ("environment", "variable", "message"),
    [
        ({"LOCAL_WORLD_SIZE": "3"}, "LOCAL_WORLD_SIZE", "3 ranks per pod do not make the mapping's 8"),
        ({"LOCAL_WORLD_SIZE": "no"}, "LOCAL_WORLD_SIZE", "must be a whole number from 1 on, got 'no'"),
        ({"LOCAL_WORLD_SIZE": "4"}, "MASTER_ADDR", "the first pod's name must be said"),
        ({**TWO_PODS, "GROUP_RANK": "2"}, "GROUP_RANK", "pod 2 is none of the 2 pods"),
        ({**TWO_PODS, "MASTER_PORT": "0"}, "MASTER_PORT", "from 1 on, got '0'"),
    ],
)
def test_what_does_not_fit_the_mapping_is_refused(environment: dict[str, str], variable: str, message: str) -> None:
    with pytest.raises(Failure) as refused:
        read_placement(Mapping(tp=4, pp=2), environment)
    assert (refused.value.code, refused.value.field) == (ExitCode.BAD_REQUEST, variable)
    assert message in refused.value.message
