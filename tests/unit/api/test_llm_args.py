"""Arguments carry the reference's names and facts, say what was written and nothing else, and keep its ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import an_engine_spec
from trtllm_operator.api.crd import structural
from trtllm_operator.api.deployment import LLMDeploymentSpec
from trtllm_operator.api.llm_args import (
    REQUIRED,
    BuildConfig,
    EagleDecodingConfig,
    EngineArgs,
    KvCacheConfig,
    LlmArgs,
    Ref,
    allowed_values,
    iter_fields,
    phase,
    ref,
    reference_default,
    reference_name,
)
from trtllm_operator.api.schema import parse_spec
from trtllm_operator.api.spellings import camel_case

FIELDS = list(iter_fields(LlmArgs))
SIZES = {"max_batch_size", "max_num_tokens"}


def parsed(**written: Any) -> LLMDeploymentSpec:
    spec, problems = parse_spec(LLMDeploymentSpec, {"model": "owner/name", **written})
    assert spec is not None, problems
    return spec


def refused(**written: Any) -> list[str]:
    return [problem.path for problem in parse_spec(LLMDeploymentSpec, {"model": "owner/name", **written})[1]]


def test_the_reference_name_can_be_told_back_from_what_users_write() -> None:
    for fact in FIELDS:
        alias = fact.path.split(".")[-1]
        assert alias == camel_case(fact.name)
        assert reference_name(fact.model, alias) == fact.name

    assert reference_name(EagleDecodingConfig, "dynamicTreeMaxTopK") == "dynamic_tree_max_topK"


def test_facts_are_read_by_machines() -> None:
    assert reference_default(BuildConfig, "max_batch_size") == 2048
    assert reference_default(LlmArgs, "model") is REQUIRED
    assert (phase(LlmArgs, "kv_cache_config"), phase(LlmArgs, "tokenizer_revision")) == ("runtime", "none")
    assert allowed_values(LlmArgs, "dtype") == ("auto", "float16", "bfloat16", "float32")
    assert allowed_values(LlmArgs, "model") == ()
    with pytest.raises(KeyError, match="no field of the reference"):
        ref(LLMDeploymentSpec, "replicas")


def test_fields_come_with_their_path_and_sections_before_their_fields() -> None:
    paths = [fact.path for fact in FIELDS]

    assert paths.index("buildConfig") < paths.index("buildConfig.pluginConfig") < paths.index("buildConfig.useMrope")
    assert paths.count("speculativeConfig.medusaChoices") == 1
    assert paths.count("speculativeConfig.maxDraftLen") == 4, "once for each type"
    assert "replicas" not in [fact.path for fact in iter_fields(LLMDeploymentSpec)]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (Ref(8, "build"), "Default: 8."),
        (Ref(False, "build"), "Default: false."),
        (Ref("auto", "build"), "Default: auto."),
        (Ref(2048, "build", here="what fits"), "LlmArgs default: 2048; unset here: what fits."),
        (Ref(None, "build", here="what fits"), "Unset: what fits."),
        (Ref(None, "build"), ""),
        (Ref([], "build"), ""),
        (Ref(REQUIRED, "build"), ""),
    ],
)
def test_a_default_is_told_in_a_sentence(facts: Ref, said: str) -> None:
    assert facts.sentence() == said


def test_nothing_is_filled_in() -> None:
    assert parsed().to_json() == {"model": "owner/name"}
    assert all(fact.model.model_fields[fact.name].default is not fact.default for fact in FIELDS if fact.default)


@pytest.mark.parametrize("section", ["peftCacheConfig", "enableBuildCache"])
def test_a_section_whose_presence_says_something_is_kept_when_it_is_empty(section: str) -> None:
    assert parsed(**{section: {}}).to_json() == {"model": "owner/name", section: {}}


@pytest.mark.parametrize("section", ["kvCacheConfig", "buildConfig", "quantConfig", "pytorchBackendConfig"])
def test_any_other_empty_section_says_as_much_as_none(section: str) -> None:
    assert parsed(**{section: {}}) == parsed()


@pytest.mark.parametrize(
    ("section", "field", "good", "bad"),
    [
        ("kvCacheConfig", "freeGpuMemoryFraction", [0.001, 0.999], [0, 1, 1.5]),
        ("kvCacheConfig", "crossKvCacheFraction", [0.5], [0, 1]),
        ("kvCacheConfig", "maxAttentionWindow", [[1], [4096, 128]], [[], [0], [-1]]),
        ("kvCacheConfig", "sinkTokenLength", [1], [0]),
        ("kvCacheConfig", "eventBufferMaxSize", [0], [-1]),
        ("buildConfig", "maxBeamWidth", [1], [0]),
        ("quantConfig", "clampVal", [[-1.0, 1.0], [0, 1]], [[1.0], [1.0, 2.0, 3.0]]),
        ("quantConfig", "kvCacheQuantAlgo", ["INT8"], ["W4A16", "int8"]),
        ("quantConfig", "quantAlgo", ["FP8", "NO_QUANT"], ["INT8", "fp8"]),
        ("enableBuildCache", "maxRecords", [1], [0]),
        ("pytorchBackendConfig", "streamInterval", [1], [0]),
        ("calibConfig", "randomSeed", [0], [-1]),
        ("cpConfig", "cp_type", ["star_attention", 1], [1.5, True, None, "a" * 65, [1]]),
    ],
)
def test_ranges_are_the_references(section: str, field: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert refused(**{section: {field: value}}) == []
    for value in bad:
        (path,) = refused(**{section: {field: value}})
        assert path.startswith(f"spec.{section}.{field}")


@pytest.mark.parametrize(
    ("speculation", "path"),
    [
        ({"decodingType": "Eagle", "posteriorThreshold": 1}, "spec.speculativeConfig.posteriorThreshold"),
        ({"decodingType": "Lookahead", "maxWindowSize": 0}, "spec.speculativeConfig.maxWindowSize"),
        ({"decodingType": "Medusa", "medusaChoices": [[0], [-1]]}, "spec.speculativeConfig.medusaChoices[1][0]"),
        ({"decodingType": "Medusa", "greedySampling": True}, "spec.speculativeConfig.greedySampling"),
    ],
)
def test_each_kind_of_speculation_has_its_own_fields(speculation: dict[str, Any], path: str) -> None:
    assert refused(speculativeConfig=speculation) == [path]


def test_limits_that_follow_the_load_are_written_whole() -> None:
    written = {"schedulerConfig": {"dynamicBatchConfig": {"enableBatchSizeTuning": True}}}

    assert refused(**written) == [
        "spec.schedulerConfig.dynamicBatchConfig.enableMaxNumTokensTuning",
        "spec.schedulerConfig.dynamicBatchConfig.dynamicBatchMovingAverageWindow",
    ]


def test_an_engine_has_the_arguments_that_it_may_depend_on() -> None:
    build = {name for name in LlmArgs.model_fields if phase(LlmArgs, name) in ("build", "both")}

    assert set(EngineArgs.model_fields) == (build - {"backend"}) | SIZES, "with a backend there is no engine"


def test_the_arguments_of_an_engine_are_arguments() -> None:
    args = LlmArgs.of(an_engine_spec(dtype="bfloat16", maxBatchSize=4))

    assert (args.dtype, args.max_batch_size) == ("bfloat16", 4)
    assert args.kv_cache_config == KvCacheConfig() and args.backend is None
    assert "kv_cache_config" not in args.model_fields_set


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Anything that the API server would store for this schema."""
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(0, 9) | st.just("word")
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "number":
            low, high = schema.get("minimum", -1e9), schema.get("maximum", 1e9)
            open_low, open_high = schema.get("exclusiveMinimum", False), schema.get("exclusiveMaximum", False)
            return st.floats(low, high, exclude_min=open_low, exclude_max=open_high)
        case "string":
            return st.text("abc", min_size=1, max_size=min(8, schema["maxLength"]))
        case "array":
            most = min(3, schema["maxItems"])
            return st.lists(values(schema["items"]), min_size=schema.get("minItems", 0), max_size=most)
    if "additionalProperties" in schema:
        return st.dictionaries(
            st.text("abc", min_size=1, max_size=3), values(schema["additionalProperties"]), max_size=2
        )
    if "x-kubernetes-validations" in schema:
        return st.sampled_from(schema["properties"]["decodingType"]["enum"]).flatmap(
            lambda kind: speculation(schema, kind)
        )
    return section(schema["properties"], schema.get("required", ()))


def section(properties: dict[str, Any], required: Sequence[str] = ()) -> st.SearchStrategy[dict[str, Any]]:
    """A few of its fields: all of them are never written, and take long to make."""
    optional = sorted(set(properties) - set(required))
    chosen = st.lists(st.sampled_from(optional), unique=True, max_size=3) if optional else st.just([])
    return chosen.flatmap(lambda names: st.fixed_dictionaries({n: values(properties[n]) for n in (*required, *names)}))


def speculation(schema: dict[str, Any], kind: str) -> st.SearchStrategy[dict[str, Any]]:
    foreign = {
        rule["fieldPath"].removeprefix(".")
        for rule in schema["x-kubernetes-validations"]
        if f"'{kind}'" not in rule["rule"]
    }
    own = {name: field for name, field in schema["properties"].items() if name not in foreign | {"decodingType"}}
    return section(own).map(lambda fields: {"decodingType": kind, **fields})


ARGUMENTS = section(structural(LlmArgs)["properties"], ["model"])


@given(ARGUMENTS)
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=200)
def test_what_the_api_server_stores_is_read_and_written_without_loss(written: dict[str, Any]) -> None:
    spec, problems = parse_spec(LLMDeploymentSpec, written)

    assert problems == () and spec is not None
    again, _ = parse_spec(LLMDeploymentSpec, spec.to_json())
    assert again == spec
