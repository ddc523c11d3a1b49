"""The spec mirrors LlmArgs: `llmargs.json` beside this file holds the reference's facts, and nothing differs unsaid.

A field's type there is `bool`, `int`, `float`, `str`, a list or dict of one of these, the name of a section, or
`object` for what lives in a Python program. `enum`, `range` and `releases` stand only where the reference has them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from trtllm_operator.api import llm_args
from trtllm_operator.api.crd import structural
from trtllm_operator.api.left_out import LEFT_OUT
from trtllm_operator.api.llm_args import REQUIRED, LlmArgs, Ref, iter_fields, ref
from trtllm_operator.api.schema import ApiModel, models_in
from trtllm_operator.api.spellings import camel_case

Facts = Mapping[str, Mapping[str, Mapping[str, Any]]]

REFERENCE: Final[Facts] = json.loads(Path(__file__).with_name("llmargs.json").read_text())

PREFIX: Final = {
    "LlmArgs": "",
    "BuildConfig": "build_config.",
    "PluginConfig": "build_config.plugin_config.",
    "PyTorchConfig": "pytorch_backend_config.",
}
"""Where the sections are that lack a field, as `LEFT_OUT` writes it."""

NO_OFF: Final = "JSON cannot tell None from a field that was not written: None is spelled disable, as trtllm-build does"
DIFFERENCES: Final[Mapping[tuple[str, str], str]] = {
    ("LlmArgs.tokenizer", "type"): "a tokenizer that somebody loaded lives in a Python program",
    ("LlmArgs.cp_config", "type"): "a narrow map: values of any type could not be bounded",
    ("LlmArgs.enable_build_cache", "type"): "the API server knows no field that is a boolean or a section; true is {}",
    ("LlmArgs.pytorch_backend_config", "extra"): "a section of the options file, which LlmArgs itself does not list",
    ("QuantConfig.quant_algo", "enum"): "INT8 is a scheme of the KV cache only",
    ("PyTorchConfig.load_format", "enum"): "the two values that are documented; a mistake would show only in the pod",
    ("PyTorchConfig.moe_load_balancer", "type"): "the API server knows no field that is a section or a text",
    **{
        (f"PluginConfig.{name}", "enum"): NO_OFF
        for name in (
            "bert_attention_plugin",
            "gpt_attention_plugin",
            "gemm_plugin",
            "gemm_swiglu_plugin",
            "fp8_rowwise_gemm_plugin",
            "qserve_gemm_plugin",
            "identity_plugin",
            "nccl_plugin",
            "lora_plugin",
            "weight_only_groupwise_quant_matmul_plugin",
            "weight_only_quant_matmul_plugin",
            "smooth_quant_gemm_plugin",
            "layernorm_quantization_plugin",
            "rmsnorm_quantization_plugin",
            "moe_plugin",
            "mamba_conv1d_plugin",
            "low_latency_gemm_plugin",
            "low_latency_gemm_swiglu_plugin",
            "gemm_allreduce_plugin",
        )
    },
}
"""(field, aspect) -> why it is meant to differ."""


@cache
def schemas_of(model: type[ApiModel]) -> dict[str, Any]:
    properties: dict[str, Any] = structural(model)["properties"]
    return properties


def differences(reference: Facts) -> Iterator[tuple[str, str]]:
    """(field, aspect) of everything in which the models differ from the reference."""
    for section, facts in reference.items():
        model: type[ApiModel] = getattr(llm_args, section)
        schemas = schemas_of(model)
        mirrored = {
            name for name, field in model.model_fields.items() if any(isinstance(m, Ref) for m in field.metadata)
        }
        for name in sorted(mirrored - set(facts)):
            yield f"{section}.{name}", "extra"
        for name, fact in facts.items():
            where = f"{section}.{name}"
            if name not in mirrored:
                yield where, "missing"
                continue
            ours, schema = ref(model, name), schemas[camel_case(name)]
            if set(fact["type"].split(" | ")) != type_of(model, name, schema):
                yield where, "type"
            if not same(fact.get("default", REQUIRED), ours.default):
                yield where, "default"
            if fact.get("enum") != schema.get("enum") and set(fact.get("enum", ())) != set(schema.get("enum", ())):
                yield where, "enum"
            if "range" in fact and fact["range"] != range_of(schema, fact["range"]):
                yield where, "range"
            if (fact["phase"], fact.get("releases")) != (ours.phase, ours.versions):
                yield where, "phase"


def type_of(model: type[ApiModel], name: str, schema: Mapping[str, Any]) -> set[str]:
    """As `llmargs.json` writes it."""
    sections = models_in(model.model_fields[name].annotation)
    return {section.__name__ for section in sections} or {plain_type(schema)}


def plain_type(schema: Mapping[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "int or str"
    if schema["type"] == "array":
        return f"list[{plain_type(schema['items'])}]"
    if schema["type"] == "object":
        return f"dict[{plain_type(schema['additionalProperties'])}]"
    return {"boolean": "bool", "integer": "int", "number": "float", "string": "str"}[schema["type"]]


def range_of(schema: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Ours, in the words that the reference uses for its own."""
    if "items" in asked:
        return {"items": schema["minItems"]} if schema["minItems"] == schema["maxItems"] else {}
    schema = schema.get("items", schema)
    low, high = ("gt" if "exclusiveMinimum" in schema else "ge"), ("lt" if "exclusiveMaximum" in schema else "le")
    return {low: schema["minimum"]} | ({high: schema["maximum"]} if {"lt", "le"} & set(asked) else {})


def same(reference: Any, ours: Any) -> bool:
    """true is not 1."""
    return type(reference) is type(ours) and bool(reference == ours)


def changed(section: str, name: str, **facts: Any) -> Facts:
    reference = copy.deepcopy(dict(REFERENCE))
    reference[section] = {**reference[section], name: {**reference[section][name], **facts}}
    return reference


def test_nothing_differs_from_the_reference_but_what_is_meant_to() -> None:
    found = {difference for difference in differences(REFERENCE) if difference[1] != "missing"}

    assert found - set(DIFFERENCES) == set(), "differs, and nothing says why"
    assert set(DIFFERENCES) - found == set(), "is said to differ, and does not"


def test_what_a_spec_has_not_is_left_out_with_a_reason() -> None:
    missing = {
        f"{PREFIX.get(section, section + '.')}{name}"
        for section, name in (where.split(".") for where, aspect in differences(REFERENCE) if aspect == "missing")
    }

    assert missing == set(LEFT_OUT)
    assert all(LEFT_OUT.values())


def test_every_section_of_the_arguments_is_in_the_reference() -> None:
    models = {fact.model.__name__ for fact in iter_fields(LlmArgs)}

    assert models == set(REFERENCE)


@pytest.mark.parametrize(
    ("section", "name", "facts", "aspect"),
    [
        ("BuildConfig", "max_batch_size", {"default": 1024}, "default"),
        ("KvCacheConfig", "enable_block_reuse", {"default": 1}, "default"),
        ("DynamicBatchConfig", "enable_batch_size_tuning", {"default": None}, "default"),
        ("QuantConfig", "group_size", {"type": "str"}, "type"),
        ("LlmArgs", "speculative_config", {"type": "MTPDecodingConfig"}, "type"),
        ("LlmArgs", "dtype", {"enum": ["auto", "float16"]}, "enum"),
        ("KvCacheConfig", "free_gpu_memory_fraction", {"range": {"ge": 0, "le": 1}}, "range"),
        ("KvCacheConfig", "max_attention_window", {"range": {"ge": 0}}, "range"),
        ("KvCacheConfig", "max_tokens", {"phase": "build"}, "phase"),
        ("PyTorchConfig", "use_kv_cache", {"releases": "1.0+"}, "phase"),
    ],
)
def test_a_fact_that_differs_is_found(section: str, name: str, facts: dict[str, Any], aspect: str) -> None:
    found = set(differences(changed(section, name, **facts))) - set(differences(REFERENCE))

    assert found == {(f"{section}.{name}", aspect)}


def test_a_field_that_only_one_side_has_is_found() -> None:
    more = {**REFERENCE, "CalibConfig": {**REFERENCE["CalibConfig"], "novelty": {"type": "int", "phase": "build"}}}
    fewer = {**REFERENCE, "CalibConfig": {n: f for n, f in REFERENCE["CalibConfig"].items() if n != "device"}}

    assert ("CalibConfig.novelty", "missing") in set(differences(more))
    assert ("CalibConfig.device", "extra") in set(differences(fewer))
