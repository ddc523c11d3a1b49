"""What a wrong manifest looks like to its author: refused at its field by the real API server, nothing created.

Shape, ranges and names are the schema's and CEL's; the rest is the webhook of a running operator. The webhook's
configuration here says `Fail`, so that nothing passes because nobody was asked.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.builders import HUB, a_deployment_object, an_engine_object
from tests.cluster.cluster import Cluster
from tests.cluster.network import free_ports
from tests.cluster.waiting import wait_until
from tests.operator_process import OperatorProcess

pytestmark = pytest.mark.apiserver

Json = dict[str, Any]
NAME: Final = "trtllm-operator-webhook"


def configuration(port: int) -> Json:
    """As the chart's, but by address: no Service of this control plane leads anywhere."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [
            {
                "name": "validate.inference.trtllm-operator.dev",
                "clientConfig": {"url": f"https://localhost:{port}/validate"},
                "rules": [
                    {
                        "apiGroups": ["inference.trtllm-operator.dev"],
                        "apiVersions": ["v1alpha1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["llmdeployments", "llmengines"],
                    }
                ],
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 10,
            }
        ],
    }


@pytest.fixture(scope="module", autouse=True)
def webhook(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A running operator whose webhook the API server asks."""
    (port,) = free_ports(1)
    cluster.kubectl("apply", "-f-", input=json.dumps(configuration(port)))
    arguments = ("--webhook-address", f"127.0.0.1:{port}")
    try:
        with OperatorProcess(cluster.kubeconfig, tmp_path_factory.mktemp("operator"), {}, arguments=arguments):
            wait_until(lambda: not refused(cluster, "default", a_deployment_object()), "the webhook to answer", 30)
            yield
    finally:
        cluster.kubectl("delete", "validatingwebhookconfiguration", NAME)


def refused(cluster: Cluster, namespace: str, obj: Json, *flags: str) -> str:
    """What kubectl prints when `obj` is refused; empty if it would be accepted. Warnings are not in it."""
    obj = {**obj, "metadata": {"name": obj["metadata"]["name"], "namespace": namespace}}
    try:
        cluster.kubectl("apply", "--dry-run=server", *flags, "-f-", input=json.dumps(obj))
    except subprocess.CalledProcessError as error:
        return str(error.stderr)
    return ""


GOOD: Final[dict[str, Json]] = {
    "the small model": {},
    "of the hub": {**HUB},
    "no replica": {"replicas": 0},
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_manifest_is_accepted(cluster: Cluster, namespace: str, name: str) -> None:
    assert refused(cluster, namespace, a_deployment_object(spec=GOOD[name])) == ""


# Changes to the small model's deployment, by what is wrong -> the field that kubectl must name.
BAD: Final[dict[str, tuple[Json, str]]] = {
    # schema: names, shape, ranges, enums
    "MDL-1 empty model": ({"model": ""}, "spec.model"),
    "unknown field": ({"tensorParalelSize": 2}, "spec.tensorParalelSize"),
    "unknown field, nested": (
        {"kvCacheConfig": {"freeGpuMemoryFractoin": 0.9}},
        "spec.kvCacheConfig.freeGpuMemoryFractoin",
    ),
    "CXX-1 fraction above 1": (
        {"kvCacheConfig": {"freeGpuMemoryFraction": 1.2}},
        "spec.kvCacheConfig.freeGpuMemoryFraction",
    ),
    "CXX-1 no tokens": ({"kvCacheConfig": {"maxTokens": 0}}, "spec.kvCacheConfig.maxTokens"),
    "CXX-2 no beam": ({"maxBeamWidth": 0}, "spec.maxBeamWidth"),
    "Q21 negative size": ({"tensorParallelSize": -1}, "spec.tensorParallelSize"),
    "Q21 unknown dtype": ({"dtype": "float8"}, "spec.dtype"),
    "Q21 unknown backend": ({"backend": "tensorrt"}, "spec.backend"),
    "EMB-1 embedding mode": ({"embeddingParallelMode": "ALONG_ROWS"}, "spec.embeddingParallelMode"),
    "quantisation by another name": ({"quantConfig": {"quantAlgo": "FP4"}}, "spec.quantConfig.quantAlgo"),
    "scheduler policy": (
        {"schedulerConfig": {"capacitySchedulerPolicy": "FIFO"}},
        "spec.schedulerConfig.capacitySchedulerPolicy",
    ),
    "SPEC-11 no decoding type": ({"speculativeConfig": {"maxDraftLen": 4}}, "spec.speculativeConfig"),
    "SPEC-3 window of nothing": (
        {"speculativeConfig": {"decodingType": "Lookahead", "maxWindowSize": 0}},
        "spec.speculativeConfig.maxWindowSize",
    ),
    "leftover of another speculation": (
        {"speculativeConfig": {"decodingType": "Medusa", "maxDraftLen": 3, "maxWindowSize": 4}},
        "spec.speculativeConfig",
    ),
    "replicas": ({"replicas": -1}, "spec.replicas"),
    "quantity": ({"engine": {"storage": {"size": "much"}}}, "spec.engine.storage.size"),
    # rules of the spec alone: the webhook
    "path leaves the volume": ({"model": "/models/../etc"}, "spec.model"),
    "MDL-3 path elsewhere": ({"model": "/data/model"}, "spec.model"),
    "path without a volume": ({"modelVolume": None}, "spec.modelVolume"),
    "revision of a path": ({"revision": "main"}, "spec.revision"),
    "code of a stranger": ({"trustRemoteCode": True}, "spec.trustRemoteCode"),
    "Q3 ranks over nodes": ({"tensorParallelSize": 9, "gpusPerNode": 8}, "spec.tensorParallelSize"),
    "MAP-2 experts": (
        {"tensorParallelSize": 4, "moeTensorParallelSize": 3, "moeExpertParallelSize": 2},
        "spec.moeTensorParallelSize",
    ),
    "PAR-2 two planners": ({"autoParallel": True, "tensorParallelSize": 2}, "spec.autoParallel"),
    "speculation that the toolchain lacks": (
        {"speculativeConfig": {"decodingType": "Medusa", "maxDraftLen": 3, "numMedusaHeads": 3}},
        "spec.speculativeConfig",
    ),
    "LoRA that the toolchain lacks": ({"enableLora": True}, "spec.enableLora"),
    "StreamingLLM that the toolchain lacks": (
        {"buildConfig": {"pluginConfig": {"streamingllm": True}}},
        "spec.buildConfig.pluginConfig.streamingllm",
    ),
    "BLD-2 prompt beyond the sequence": ({"buildConfig": {"maxInputLen": 4096}}, "spec.buildConfig.maxInputLen"),
    "CON-2 a length written twice": ({"maxSeqLen": 1024}, "spec.maxSeqLen"),
    "toolchain that does not serve": (
        {"engine": {"toolchain": "tensorrt_rtx", "target": {"computeCapability": "8.9"}}},
        "spec.engine.toolchain",
    ),
    "a CPU for a GPU's engine": (
        {"engine": {"toolchain": "tensorrt_rtx", "target": {"computeCapability": "8.9"}}, "serving": {"device": "cpu"}},
        "spec.serving.device",
    ),
    "GPUs asked for twice": ({"serving": {"resources": {"limits": {"nvidia.com/gpu": "1"}}}}, "spec.serving.resources"),
    "the operator's label": (
        {"podTemplate": {"labels": {"inference.trtllm-operator.dev/role": "x"}}},
        "spec.podTemplate.labels",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_manifest_is_refused_at_its_field_and_creates_nothing(
    cluster: Cluster, namespace: str, what: str
) -> None:
    changes, field = BAD[what]
    said = refused(cluster, namespace, a_deployment_object(spec=changes))
    assert field in said
    assert cluster.kubectl("get", "trtllm,jobs,pods", "-n", namespace, "-o", "name").stdout == ""


def test_an_engine_is_judged_by_the_same_rules(cluster: Cluster, namespace: str) -> None:
    said = refused(cluster, namespace, an_engine_object(spec={"target": {"computeCapability": "7.5"}}))
    assert "spec.dtype: bfloat16 is not possible for compute capability 7.5" in said


def test_all_problems_come_in_one_answer(cluster: Cluster, namespace: str) -> None:
    said = refused(cluster, namespace, a_deployment_object(spec={"modelVolume": None, "trustRemoteCode": True}))
    assert "spec.modelVolume" in said
    assert "spec.trustRemoteCode" in said


def test_a_lenient_client_is_told_the_nearest_name(cluster: Cluster, namespace: str) -> None:
    """Such a client's unknown fields are pruned by the API server, which warns; nothing is guessed behind its back."""
    obj = a_deployment_object(spec={"tensorParalelSize": 2})
    obj["metadata"] = {"name": "lenient", "namespace": namespace}
    done = cluster.kubectl("create", "--validate=warn", "--dry-run=server", "-f-", input=json.dumps(obj))
    assert 'unknown field "spec.tensorParalelSize"' in done.stderr
