"""Switches of the PyTorch backend, of which releases renamed some."""

from typing import Any

import pytest

from tests.unit.resolve.cases import adjusted, for_engine, for_pytorch, found, refused, silent


def switches(**options: Any) -> dict[str, Any]:
    return for_pytorch(pytorchBackendConfig=options)


def test_pt_1_the_largest_graph_is_the_largest_batch_size() -> None:
    problem = refused("PT-1", found(switches(cudaGraphBatchSizes=[1, 8], cudaGraphMaxBatchSize=16)))

    assert problem.path == "spec.pytorchBackendConfig.cudaGraphMaxBatchSize"
    assert silent("PT-1", found(switches(cudaGraphBatchSizes=[1, 8], cudaGraphMaxBatchSize=8)))
    assert silent("PT-1", found(switches(cudaGraphMaxBatchSize=16)))


def test_pt_2_overlap_is_not_on_and_off() -> None:
    assert refused("PT-2", found(switches(enableOverlapScheduler=True, disableOverlapScheduler=True)))
    assert silent("PT-2", found(switches(enableOverlapScheduler=True, disableOverlapScheduler=False)))


@pytest.mark.parametrize(
    ("old", "new"), [("mixedDecoder", "mixedSampler"), ("enableTrtllmDecoder", "enableTrtllmSampler")]
)
def test_pt_3_both_names_of_a_switch_say_the_same(old: str, new: str) -> None:
    assert refused("PT-3", found(switches(**{old: True, new: False}))).path == f"spec.pytorchBackendConfig.{old}"
    assert silent("PT-3", found(switches(**{old: True, new: True})))
    assert silent("PT-3", found(switches(**{old: True})))


def test_pt_4_statistics_of_requests_turn_those_of_iterations_on() -> None:
    assert adjusted("PT-4", found(switches(enableIterReqStats=True))) == {
        "pytorchBackendConfig.enableIterPerfStats": ("false (default)", "true")
    }
    refusal = refused("PT-4", found(switches(enableIterReqStats=True, enableIterPerfStats=False)))
    assert refusal.path == "spec.pytorchBackendConfig.enableIterReqStats"
    assert silent("PT-4", found(for_engine()))
