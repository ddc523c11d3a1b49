"""Whole manifests as they are applied: a change of one is a change that users see. UPDATE_GOLDEN=1 rewrites them."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.builders import a_deployment, a_resolution, an_engine, an_engine_spec, some_defaults
from trtllm_engine.contract import Mapping
from trtllm_operator.desired.build_job import build_job
from trtllm_operator.desired.cache_claim import cache_claim
from trtllm_operator.desired.controller_revision import controller_revision, freeze
from trtllm_operator.desired.engine_claim import engine_claim
from trtllm_operator.desired.fetch_job import fetch_job
from trtllm_operator.desired.llm_engine import llm_engine
from trtllm_operator.desired.metadata import Manifest
from trtllm_operator.desired.pdb import disruption_budget
from trtllm_operator.desired.service import headless, leader
from trtllm_operator.desired.statefulset import statefulset

FOLDER = Path(__file__).parent
HUB_DEPLOYMENT = a_deployment(
    "llama",
    model="HuggingFaceTB/SmolLM2-135M-Instruct",
    modelVolume=None,
    hubTokenSecretRef={"name": "hf", "key": "token"},
    scheduling={"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}], "priorityClassName": "serving"},
    podTemplate={"imagePullSecrets": [{"name": "registry"}]},
)
DEPLOYMENT, ENGINE, DEFAULTS = a_deployment(), an_engine(), some_defaults()
RESOLUTION, ENGINE_RESOLUTION = a_resolution(), a_resolution(an_engine_spec())
FROZEN = freeze(DEPLOYMENT, RESOLUTION, DEFAULTS)
TWO_NODES = freeze(DEPLOYMENT, replace(RESOLUTION, mapping=Mapping(tp=8, pp=2), pods=2, gpus_per_pod=8), DEFAULTS)

MANIFESTS: dict[str, Callable[[], Manifest]] = {
    "fetch_job_hub": lambda: fetch_job(HUB_DEPLOYMENT, DEFAULTS),
    "fetch_job_volume": lambda: fetch_job(DEPLOYMENT, DEFAULTS),
    "build_job": lambda: build_job(ENGINE, ENGINE_RESOLUTION, DEFAULTS),
    "engine_claim": lambda: engine_claim(ENGINE, ENGINE_RESOLUTION, DEFAULTS),
    "cache_claim": lambda: cache_claim("default", DEFAULTS),
    "llm_engine": lambda: llm_engine(DEPLOYMENT, RESOLUTION, DEFAULTS),
    "statefulset": lambda: statefulset(DEPLOYMENT, FROZEN, 0),
    "statefulset_two_nodes": lambda: statefulset(DEPLOYMENT, TWO_NODES, 0),
    "controller_revision": lambda: controller_revision(DEPLOYMENT, FROZEN),
    "disruption_budget": lambda: disruption_budget(DEPLOYMENT),
    "service_headless": lambda: headless(DEPLOYMENT),
    "service_leader": lambda: leader(DEPLOYMENT, 8000),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_what_it_was(name: str) -> None:
    file, manifest = FOLDER / f"{name}.yaml", MANIFESTS[name]()
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(yaml.dump(manifest, Dumper=_NoAliases, sort_keys=False, width=120))

    assert yaml.safe_load(file.read_text()) == manifest


class _NoAliases(yaml.SafeDumper):
    """Writes what occurs twice twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True
