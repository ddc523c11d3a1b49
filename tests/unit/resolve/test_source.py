"""A model is one place: a folder on the user's volume, or a repository of the hub."""

from typing import Any

import pytest

from tests.builders import HUB, a_deployment_spec, an_engine_spec, some_defaults
from trtllm_engine.contract import ModelSource
from trtllm_operator.api.problems import Refused
from trtllm_operator.resolve.source import check_source, model_source, source_hash


def test_a_path_is_a_folder_on_the_model_volume() -> None:
    spec = a_deployment_spec(model="/models/./llama//8b/")

    assert model_source(spec, some_defaults()) == ModelSource(path="/models/llama/8b")


def test_anything_else_is_a_repository_of_the_hub() -> None:
    spec = a_deployment_spec(**HUB, revision="main")
    defaults = some_defaults(hub_endpoint="https://hub.example")

    source = model_source(spec, defaults)
    assert source == ModelSource(repo=HUB["model"], revision="main", endpoint="https://hub.example")


@pytest.mark.parametrize(
    "model",
    ["../../etc", "/models/../etc", "/models", "/models/", "/etc/passwd", "/modelsX/a", "name", "a/b/c", "a/..", "~/x"],
)
def test_nothing_outside_of_the_volume_can_be_named(model: str) -> None:
    spec = a_deployment_spec(model=model) if model.startswith("/") else a_deployment_spec(model=model, modelVolume=None)

    assert [problem.path for problem in check_source(spec)] == ["spec.model"]
    with pytest.raises(Refused):
        model_source(spec, some_defaults())


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"modelVolume": None}, "spec.modelVolume"),
        ({"revision": "main"}, "spec.revision"),
        ({"model": "org/name"}, "spec.modelVolume"),
        ({**HUB, "revision": "../main"}, "spec.revision"),
    ],
)
def test_a_field_without_meaning_is_refused_not_ignored(changes: dict[str, Any], path: str) -> None:
    assert [problem.path for problem in check_source(a_deployment_spec(**changes))] == [path]


def test_facts_go_stale_with_what_they_came_from() -> None:
    base, defaults = a_deployment_spec(), some_defaults()
    others = [
        source_hash(a_deployment_spec(model="/models/other"), defaults),
        source_hash(a_deployment_spec(modelVolume={"persistentVolumeClaim": {"claimName": "other"}}), defaults),
        source_hash(a_deployment_spec(hubTokenSecretRef={"name": "hf", "key": "token"}), defaults),
        source_hash(base, some_defaults(engine_image="another:2")),
        source_hash(a_deployment_spec(loadFormat="dummy"), defaults),
    ]

    assert len({source_hash(base, defaults), *others}) == 6


def test_facts_outlive_what_they_do_not_depend_on() -> None:
    defaults = some_defaults()
    same = a_deployment_spec(replicas=3, dtype="float16", buildConfig={"maxBatchSize": 1}, serving={"port": 9000})

    assert source_hash(same, defaults) == source_hash(a_deployment_spec(), defaults)
    assert source_hash(a_deployment_spec(loadFormat="auto"), defaults) == source_hash(a_deployment_spec(), defaults)
    assert source_hash(an_engine_spec(), defaults) == source_hash(a_deployment_spec(), defaults)
