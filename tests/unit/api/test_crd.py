"""The definitions are those of the models, and keep the promises that clients rely on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trtllm_operator.api import crd
from trtllm_operator.api.engine import MUTABLE_FIELDS, LLMEngineSpec
from trtllm_operator.api.llm_args import LlmArgs
from trtllm_operator.api.schema import models_in
from trtllm_operator.api.tree import aliases, tag

CHECKED_IN = Path(__file__).parents[3] / "crds"
CRDS = crd.crds()
NAMES = sorted(CRDS)
SPECULATION = models_in(LlmArgs.model_fields["speculative_config"].annotation)


def fields(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below `schema` with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from fields(child, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from fields(schema[keyword], f"{path}[]")


def root(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = CRDS[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("name", NAMES)
def test_the_checked_in_file_is_what_the_models_say(name: str) -> None:
    assert (CHECKED_IN / name).read_text() == crd.rendered()[name], "run `make crds`"


@pytest.mark.parametrize("name", NAMES)
def test_client_side_apply_fits_it_into_an_annotation(name: str) -> None:
    assert len(json.dumps(CRDS[name]).encode()) < crd.SIZE_LIMIT


def test_only_replicas_has_a_default() -> None:
    assert [path for path, schema in fields(root("llmdeployments.yaml")) if "default" in schema] == [".spec.replicas"]
    assert not [path for path, schema in fields(root("llmengines.yaml")) if "default" in schema]


@pytest.mark.parametrize("name", NAMES)
def test_explain_has_a_description_for_every_field(name: str) -> None:
    silent = [
        path
        for path, schema in fields(root(name))
        if "description" not in schema and not path.endswith("[]") and path != ".metadata"
    ]

    assert silent == []


@pytest.mark.parametrize("name", NAMES)
def test_every_field_has_a_type_that_the_api_server_knows(name: str) -> None:
    for path, schema in fields(root(name)):
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        assert not {"$ref", "const", "title", "oneOf", "discriminator", "allOf"} & set(schema), path
        assert not {keyword for keyword in schema if keyword.startswith("x-") and "kubernetes" not in keyword}, path
        for bound in ("Minimum", "Maximum"):
            if schema.get(f"exclusive{bound}", True) is not True or schema.get(bound.lower()) is True:
                pytest.fail(f"{path}: the limit is a number, and whether it is excluded a word")


@pytest.mark.parametrize("name", NAMES)
def test_what_users_write_is_bounded(name: str) -> None:
    """CEL's cost is estimated from the bounds."""
    for path, schema in fields(root(name)["properties"]["spec"]):
        if schema.get("type") == "string" and "enum" not in schema:
            assert "maxLength" in schema, path
        if schema.get("type") == "array":
            assert "maxItems" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path


def test_everything_of_an_engine_is_immutable_but_what_can_be_mended() -> None:
    written = {field.alias for field in LLMEngineSpec.model_fields.values()}
    rules = root("llmengines.yaml")["properties"]["spec"]["x-kubernetes-validations"]

    assert written > MUTABLE_FIELDS
    assert {rule["fieldPath"].removeprefix(".") for rule in rules} == written - MUTABLE_FIELDS


@pytest.mark.parametrize("name", NAMES)
def test_a_union_is_one_section_that_refuses_the_fields_of_the_other_types(name: str) -> None:
    section = root(name)["properties"]["spec"]["properties"]["speculativeConfig"]
    kinds = {found[1]: aliases(model) for model in SPECULATION if (found := tag(model))}
    owners = {
        field: [kind for kind, fields in kinds.items() if field in fields] for field in set().union(*kinds.values())
    }

    assert section["required"] == ["decodingType"]
    assert section["properties"]["decodingType"]["enum"] == list(kinds)
    assert set(section["properties"]) == set(owners)
    rules = {rule["fieldPath"].removeprefix("."): rule for rule in section["x-kubernetes-validations"]}
    assert set(rules) == {field for field, having in owners.items() if len(having) < len(kinds)}
    for field, rule in rules.items():
        assert rule["rule"] == f"!has(self.{field}) || self.decodingType in {owners[field]}"
        assert field in rule["message"]


@pytest.mark.parametrize("name", NAMES)
def test_an_open_interval_is_said_as_the_api_server_reads_it(name: str) -> None:
    threshold = root(name)["properties"]["spec"]["properties"]["speculativeConfig"]["properties"]["posteriorThreshold"]

    assert {k: v for k, v in threshold.items() if "imum" in k} == {
        "minimum": 0,
        "maximum": 1,
        "exclusiveMaximum": True,
    }


def test_a_default_is_the_last_sentence_of_the_description() -> None:
    spec = root("llmdeployments.yaml")["properties"]["spec"]["properties"]

    assert spec["tensorParallelSize"]["description"] == "Ranks that share each layer. Default: 1."


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("llmdeployments.yaml", "READY PHASE ENGINE MODEL PARALLEL REASON AGE GPUS NODES REVISION URL"),
        ("llmengines.yaml", "KEY STATE PROGRESS TOOLCHAIN MODEL REASON AGE TARGET VERSION USES"),
    ],
)
def test_what_people_see(name: str, columns: str) -> None:
    (version,) = CRDS[name]["spec"]["versions"]

    assert [column["name"].upper() for column in version["additionalPrinterColumns"]] == columns.split()
