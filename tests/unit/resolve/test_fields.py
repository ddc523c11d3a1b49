"""Every field of LlmArgs reaches a pod, is refused, or is listed as without effect, on every route."""

import pytest

from trtllm_engine import contract
from trtllm_operator.api.llm_args import LlmArgs, QuantAlgo, iter_fields
from trtllm_operator.resolve.capability import FEATURES, SCHEMES, Feature, Route, able, schemes
from trtllm_operator.resolve.fields import ASKS, NO_EFFECT, WITH_FEATURE, Fate, fate, no_effect

TELLS_APART = "speculativeConfig.decodingType"
"""In a spec a field; in the reference a class."""
PATHS = {fact.path for fact in iter_fields(LlmArgs)}
FIELDS = sorted(PATHS - {path.rpartition(".")[0] for path in PATHS} | {TELLS_APART})


OWN_REACH = (
    "model",
    "revision",
    "dtype",
    "trustRemoteCode",
    "tensorParallelSize",
    "pipelineParallelSize",
    "gpusPerNode",
    "moeTensorParallelSize",
    "moeExpertParallelSize",
    "autoParallel",
    "autoParallelWorldSize",
    "maxBatchSize",
    "maxInputLen",
    "maxSeqLen",
    "loadFormat",
    "quantConfig.quantAlgo",
    "quantConfig.groupSize",
    "backend",
    "buildConfig.maxBatchSize",
    "buildConfig.maxInputLen",
    "buildConfig.maxSeqLen",
)
"""What this project's own builds and servers are told."""


@pytest.mark.parametrize("route", [route for route in Route if route.own])
def test_the_three_sets_add_up_on_own_toolchains(route: Route) -> None:
    fates = {path: fate(path, route)[0] for path in FIELDS}
    refused = {ask.path for ask in ASKS} - set(OWN_REACH) | {
        path for path in FIELDS if path.startswith("speculativeConfig.")
    }
    without = {path for path in FIELDS if no_effect(path, route)}

    assert {path for path, end in fates.items() if end is Fate.REACHES} == set(OWN_REACH)
    assert {path for path, end in fates.items() if end is Fate.REFUSED} == refused
    assert {path for path, end in fates.items() if end is Fate.NO_EFFECT} == without
    assert len(FIELDS) == len(OWN_REACH) + len(refused) + len(without)


@pytest.mark.parametrize("route", [route for route in Route if not route.own])
def test_the_three_sets_add_up_where_an_image_takes_the_arguments(route: Route) -> None:
    fates = {path: fate(path, route) for path in FIELDS}

    assert {end for end, _ in fates.values()} == set(Fate)
    assert all(why for end, why in fates.values() if end is not Fate.REACHES)
    assert all(fates[path][0] is Fate.REACHES for path in ("model", "tensorParallelSize", "maxSeqLen"))


def test_no_table_names_a_field_that_does_not_exist() -> None:
    named = [ask.path for ask in ASKS] + [path for row in NO_EFFECT for path in row.paths] + [*OWN_REACH, *WITH_FEATURE]

    unknown = [p for p in named if not any(f == p or f.startswith(p.removesuffix("*")) for f in FIELDS)]
    assert unknown == []


def test_every_feature_is_in_the_table_and_can_be_asked_for() -> None:
    assert set(FEATURES) == set(Feature) == {ask.feature for ask in ASKS}


def test_a_field_of_which_some_values_are_possible_names_them() -> None:
    for route in Route:
        end, which = fate("quantConfig.quantAlgo", route)
        assert (end, which) == (Fate.REACHES, "W8A16, W4A16") if route.own else which != "W8A16, W4A16"


def test_every_scheme_has_its_routes() -> None:
    assert set(SCHEMES) == set(QuantAlgo) - {QuantAlgo.NO_QUANT}
    assert able(Feature.QUANTISATION, "FP8") < able(Feature.QUANTISATION, "W8A16") == FEATURES[Feature.QUANTISATION]


@pytest.mark.parametrize("route", [route for route in Route if route.own])
def test_a_build_can_be_told_every_scheme_that_its_toolchain_has(route: Route) -> None:
    assert set(schemes(route)) <= {algo.value for algo in contract.QuantAlgo}
