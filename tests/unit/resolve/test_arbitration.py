"""What the user left open is chosen and told; what the user wrote stays, or its change is told."""

from typing import Any

import pytest

from tests.builders import a_deployment_spec, smollm2_facts, some_defaults
from trtllm_engine.contract import BuildArgs
from trtllm_operator.resolve.arbitration import Arbitrated, arbitrate, cache_bytes, weight_bytes


def arbitrated(spec: dict[str, Any] | None = None, **facts: Any) -> Arbitrated:
    return arbitrate(a_deployment_spec(**(spec or {})), smollm2_facts(**facts), some_defaults())


def told(result: Arbitrated) -> dict[str, tuple[str | None, str]]:
    return {adjustment.path: (adjustment.from_value, adjustment.to_value) for adjustment in result.adjustments}


def test_what_the_user_wrote_stays_and_needs_no_word() -> None:
    result = arbitrated()

    assert result.args == BuildArgs(dtype="float32", max_batch_size=8, max_input_len=1024, max_seq_len=2048)
    assert result.adjustments == ()


def test_sizes_that_were_left_out_are_chosen_and_told() -> None:
    result = arbitrated({"buildConfig": None}, max_position_embeddings=131072)

    assert result.args == BuildArgs(dtype="float32", max_batch_size=8, max_input_len=8192, max_seq_len=8192)
    assert told(result) == {
        "spec.buildConfig.maxSeqLen": (None, "8192"),
        "spec.buildConfig.maxInputLen": (None, "8192"),
        "spec.buildConfig.maxBatchSize": (None, "8"),
    }
    assert "takes 2.81 GiB" in result.adjustments[-1].reason


@pytest.mark.parametrize(
    ("written", "positions", "sequence"),
    [
        ({}, 2048, 2048),
        ({}, 131072, 8192),
        ({"maxInputLen": 16000}, 131072, 16000),
        ({"maxInputLen": 16000}, 16384, 16000),
    ],
)
def test_an_unasked_sequence_is_the_models_at_most_8192_but_holds_the_prompt(
    written: dict[str, int], positions: int, sequence: int
) -> None:
    result = arbitrated(
        {"buildConfig": {"maxSeqLen": None, "maxInputLen": None, **written}}, max_position_embeddings=positions
    )

    assert result.args.max_seq_len == sequence
    assert result.args.max_input_len <= sequence


def test_a_prompt_longer_than_its_sequence_is_clipped_and_told() -> None:
    result = arbitrated({"buildConfig": {"maxInputLen": 4096}})

    assert result.args.max_input_len == 2048
    assert told(result) == {"spec.buildConfig.maxInputLen": ("4096", "2048")}


@pytest.mark.parametrize(
    ("spec", "checkpoint", "dtype", "said"),
    [
        ({"dtype": None}, "bfloat16", "bfloat16", False),
        ({"dtype": "auto"}, "float32", "float16", True),
        ({"dtype": None, "serving": {"device": "cpu"}}, "float32", "float32", True),
        ({"dtype": "bfloat16"}, "float32", "bfloat16", False),
        (
            {"dtype": None, "engine": {"toolchain": "tensorrt_rtx", "target": {"computeCapability": "7.5"}}},
            "bfloat16",
            "float16",
            True,
        ),
    ],
)
def test_the_dtype_follows_the_checkpoint_unless_something_speaks_against_it(
    spec: dict[str, Any], checkpoint: str, dtype: str, said: bool
) -> None:
    result = arbitrated(spec, dtype=checkpoint)

    assert result.args.dtype == dtype
    assert ("spec.dtype" in told(result)) is said


def test_a_target_that_changes_nothing_is_told() -> None:
    result = arbitrated({"engine": {"target": {"computeCapability": "8.9"}}})

    assert result.target.compute_capability is None
    assert told(result) == {"spec.engine.target.computeCapability": ("8.9", "any")}


def test_memory_is_counted_in_the_engines_dtype() -> None:
    args = BuildArgs(dtype="float16", max_batch_size=2, max_input_len=10, max_seq_len=100)

    assert weight_bytes(smollm2_facts(), "float32") == 4 * 134_515_008
    # keys and values x layers x heads x width x bytes x tokens x sequences
    assert cache_bytes(smollm2_facts(), args) == 2 * 30 * 3 * 64 * 2 * 100 * 2
