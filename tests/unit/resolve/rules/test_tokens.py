"""How many tokens one step computes."""

from typing import Any

import pytest

from tests.unit.resolve.cases import adjusted, for_engine, found, refused, silent, warned


def build(**options: Any) -> dict[str, Any]:
    return for_engine(buildConfig=options)


def test_tok_1_without_packing_the_limits_count_for_nothing() -> None:
    unpacked = {"removeInputPadding": False}

    assert (
        warned("TOK-1", found(build(maxNumTokens=4096, pluginConfig=unpacked))).path == "spec.buildConfig.maxNumTokens"
    )
    assert silent("TOK-1", found(build(maxNumTokens=4096)))
    assert silent("TOK-1", found(build(pluginConfig=unpacked)))


def test_tok_4_many_tokens_are_told() -> None:
    assert warned("TOK-4", found(build(maxNumTokens=16385))).path == "spec.buildConfig.maxNumTokens"
    assert silent("TOK-4", found(build(maxNumTokens=16384)))


def test_tok_5_more_tokens_than_all_sequences_have_are_told() -> None:
    assert (
        "2 sequences of 100 are 200"
        in warned("TOK-5", found(build(maxNumTokens=201, maxBatchSize=2, maxSeqLen=100, maxInputLen=50))).message
    )
    assert silent("TOK-5", found(build(maxNumTokens=200, maxBatchSize=2, maxSeqLen=100)))


def test_tok_5_a_default_for_tokens_gives_way() -> None:
    result = found(build(maxBatchSize=2, maxSeqLen=2048))
    assert adjusted("TOK-5", result) == {"buildConfig.maxNumTokens": ("8192 (default)", "4096")}


def test_tok_6_a_step_holds_a_block() -> None:
    problem = refused("TOK-6", found(build(maxNumTokens=63, pluginConfig={"tokensPerBlock": 64})))

    assert (problem.path, problem.hint) == ("spec.buildConfig.maxNumTokens", "use at least 64")
    assert silent("TOK-6", found(build(maxNumTokens=64, pluginConfig={"tokensPerBlock": 64})))


def test_tok_7_the_fastest_step_is_not_above_the_largest() -> None:
    assert refused("TOK-7", found(build(optNumTokens=65, maxNumTokens=64))).path == "spec.buildConfig.optNumTokens"
    assert silent("TOK-7", found(build(optNumTokens=64, maxNumTokens=64)))


def test_tok_7_a_default_for_the_largest_gives_way() -> None:
    assert adjusted("TOK-7", found(build(optNumTokens=9000))) == {
        "buildConfig.maxNumTokens": ("8192 (default)", "9000")
    }
    assert silent("TOK-7", found(build(optNumTokens=8192)))


def test_tok_8_profiles_and_one_fastest_step_exclude_each_other() -> None:
    both = build(optNumTokens=64, pluginConfig={"multipleProfiles": True})

    assert refused("TOK-8", found(both)).path == "spec.buildConfig.optNumTokens"
    assert silent("TOK-8", found(build(pluginConfig={"multipleProfiles": True})))


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (build(maxNumTokens=2048, maxInputLen=4096), "spec.buildConfig.maxNumTokens"),
        (build(maxInputLen=9000), "spec.buildConfig.maxInputLen"),
    ],
)
def test_tok_9_a_prompt_longer_than_a_step_is_told_with_both_remedies(spec: dict[str, Any], path: str) -> None:
    caution = warned("TOK-9", found(spec))

    assert caution.path == path
    assert "spec.enableChunkedPrefill" in caution.message
    assert "spec.buildConfig.maxNumTokens" in caution.message
    assert silent("TOK-9", found({**spec, "enableChunkedPrefill": True}))
