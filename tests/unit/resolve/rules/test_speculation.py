"""Tokens that are guessed ahead."""

from typing import Any

import pytest

from tests.unit.resolve.cases import adjusted, for_engine, for_pytorch, found, refused, silent, warned
from trtllm_operator.resolve.claims import lookahead_draft

WHERE = "spec.speculativeConfig"


def guessing(kind: str, build: dict[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    return for_engine(speculativeConfig={"decodingType": kind, **config}, buildConfig=build)


def test_spec_4_an_ngram_has_two_tokens() -> None:
    assert refused("SPEC-4", found(guessing("Lookahead", maxNgramSize=1))).path == f"{WHERE}.maxNgramSize"
    assert silent("SPEC-4", found(guessing("Lookahead", maxNgramSize=2)))


@pytest.mark.parametrize("kind", ["Medusa", "Eagle"])
def test_spec_5_a_draft_length_is_written_and_not_nothing(kind: str) -> None:
    assert "is required" in refused("SPEC-5", found(guessing(kind))).message
    assert "0 is not allowed" in refused("SPEC-5", found(guessing(kind, maxDraftLen=0))).message


@pytest.mark.parametrize(("rule", "kind", "mode"), [("SPEC-5", "Medusa", "MEDUSA"), ("SPEC-6", "Eagle", "EAGLE")])
def test_spec_5_and_spec_6_set_the_builds_mode_and_draft_length(rule: str, kind: str, mode: str) -> None:
    assert adjusted(rule, found(guessing(kind, maxDraftLen=63))) == {
        "buildConfig.speculativeDecodingMode": ("NONE (default)", mode),
        "buildConfig.maxDraftLen": ("0 (default)", "63"),
    }


def test_spec_1_lookahead_sets_the_builds_mode_and_draft_length() -> None:
    assert adjusted("SPEC-1", found(guessing("Lookahead"))) == {
        "buildConfig.speculativeDecodingMode": ("NONE (default)", "LOOKAHEAD_DECODING"),
        "buildConfig.maxDraftLen": ("0 (default)", "15"),
    }


def test_spec_2_lookahead_only_raises_a_draft_length_that_is_written() -> None:
    result = found(guessing("Lookahead", {"maxDraftLen": 40}))

    assert "buildConfig.maxDraftLen" not in adjusted("SPEC-1", result)


@pytest.mark.parametrize(("sizes", "draft"), [((4, 3, 4), 15), ((8, 8, 8), 111), ((1, 1, 0), 0)])
def test_the_draft_of_lookahead_follows_from_its_sizes(sizes: tuple[int, int, int], draft: int) -> None:
    assert lookahead_draft(*sizes) == draft


def test_spec_7_eagle_on_pytorch_says_where_its_weights_are() -> None:
    eagle = {"decodingType": "Eagle", "maxDraftLen": 3}

    result = found(for_pytorch(speculativeConfig=eagle))
    assert refused("SPEC-7", result).path == f"{WHERE}.pytorchEagleWeightsPath"
    assert silent("SPEC-7", found(for_pytorch(speculativeConfig={**eagle, "pytorchEagleWeightsPath": "a/b"})))
    assert silent("SPEC-7", found(for_engine(speculativeConfig=eagle)))


def test_spec_8_eagle_3_weights_of_an_engine_are_told() -> None:
    """Q25."""
    spec = guessing("Eagle", maxDraftLen=3, pytorchEagleWeightsPath="a/b")
    assert warned("SPEC-8", found(spec)).path == f"{WHERE}.pytorchEagleWeightsPath"


def test_cxx_4_a_tree_is_fixed_or_dynamic() -> None:
    both = guessing("Eagle", maxDraftLen=3, useDynamicTree=True, eagleChoices=[[0], [0, 0]])

    assert refused("CXX-4", found(both)).path == f"{WHERE}.eagleChoices"
    assert silent("CXX-4", found(guessing("Eagle", maxDraftLen=3, eagleChoices=[[0]])))


def test_cxx_5_the_builds_mode_is_that_of_the_section() -> None:
    spec = guessing("Medusa", {"speculativeDecodingMode": "EAGLE"}, maxDraftLen=3)
    assert refused("CXX-5", found(spec)).path == "spec.buildConfig.speculativeDecodingMode"
    assert silent("CXX-5", found(guessing("Medusa", {"speculativeDecodingMode": "MEDUSA"}, maxDraftLen=3)))


def test_bld_7_eagle_has_a_largest_batch_and_draft() -> None:
    wide = guessing("Eagle", {"maxBatchSize": 513}, maxDraftLen=63)
    assert refused("BLD-7", found(wide)).path == "spec.buildConfig.maxBatchSize"
    assert refused("BLD-7", found(guessing("Eagle", maxDraftLen=257))).path == f"{WHERE}.maxDraftLen"
    assert silent("BLD-7", found(guessing("Medusa", {"maxBatchSize": 513}, maxDraftLen=63)))


def test_bld_7_eagle_with_the_default_batch_works() -> None:
    assert adjusted("BLD-7", found(guessing("Eagle", maxDraftLen=63))) == {
        "buildConfig.maxBatchSize": ("2048 (default)", "512")
    }


def test_bld_7_eagle_and_no_paged_attention_of_prompts_exclude_each_other() -> None:
    off = guessing("Eagle", {"pluginConfig": {"usePagedContextFmha": False}}, maxDraftLen=63)
    assert "usePagedContextFmha" in refused("BLD-7", found(off)).message
