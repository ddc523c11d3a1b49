"""The definitions in a real API server: what it refuses before the operator sees it, and what it explains."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.builders import a_deployment_object, an_engine_object, merged
from tests.cluster.cluster import Cluster
from tests.cluster.paths import REPOSITORY

pytestmark = pytest.mark.apiserver


def apply(cluster: Cluster, namespace: str, obj: dict[str, Any], *flags: str) -> None:
    metadata = {"name": obj["metadata"]["name"], "namespace": namespace}
    cluster.kubectl("apply", *flags, "-f-", input=json.dumps({**obj, "metadata": metadata}))


def refusal(cluster: Cluster, namespace: str, obj: dict[str, Any], *flags: str) -> str:
    """What kubectl prints when the API server refuses `obj`."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        apply(cluster, namespace, obj, *flags)
    return str(caught.value.stderr)


def test_the_examples_are_accepted(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", str(REPOSITORY / "examples"))

    listed = cluster.kubectl("get", "trtllm", "-n", namespace).stdout
    assert "READY   PHASE   ENGINE   MODEL" in listed
    assert "/models/SmolLM2-135M-Instruct" in listed


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a" * 41, "at most 40 characters"),
        ("1st", "begins with a letter"),
        ("a.b", "begins with a letter"),
        ("llama-ranks", "must not end in -ranks"),
    ],
)
def test_a_name_that_others_cannot_be_made_from_is_refused(
    cluster: Cluster, namespace: str, name: str, said: str
) -> None:
    assert said in refusal(cluster, namespace, a_deployment_object(name))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"tensorParalelSize": 2}, 'unknown field "spec.tensorParalelSize"'),
        ({"buildConfig": {"maxBatchSize": 0}}, "spec.buildConfig.maxBatchSize"),
        ({"engine": {"toolchain": "gcc"}}, '"tensorrt_rtx"'),
        ({"model": None}, "spec.model: Required value"),
    ],
)
def test_a_mistake_is_refused_at_its_field(cluster: Cluster, namespace: str, spec: dict[str, Any], said: str) -> None:
    assert said in refusal(cluster, namespace, a_deployment_object(spec=spec))


def test_a_typing_error_is_refused_for_server_side_apply_too(cluster: Cluster, namespace: str) -> None:
    wrong = a_deployment_object(spec={"tensorParalelSize": 2})

    assert "field not declared in schema" in refusal(cluster, namespace, wrong, "--server-side")


@pytest.mark.parametrize(
    "change",
    [
        {"tensorParallelSize": 2},
        {"dtype": None},
        {"target": {"computeCapability": "8.6"}},
        {"model": "/models/other"},
        {"buildConfig": {"maxSeqLen": 4096}},
    ],
)
def test_what_an_engine_is_cannot_change(cluster: Cluster, namespace: str, change: dict[str, Any]) -> None:
    engine = an_engine_object()
    apply(cluster, namespace, engine)

    changed = merged(engine, {"spec": change})
    (field,) = change
    assert f"{field} cannot change" in refusal(cluster, namespace, changed)


def test_an_engine_can_be_mended(cluster: Cluster, namespace: str) -> None:
    engine = an_engine_object()
    apply(cluster, namespace, engine)

    apply(
        cluster, namespace, merged(engine, {"spec": {"storage": {"size": "9Gi"}, "retention": "Keep", "image": "b:2"}})
    )


def test_replicas_can_be_scaled_and_are_one_when_left_out(cluster: Cluster, namespace: str) -> None:
    apply(cluster, namespace, a_deployment_object())
    where = ("llmd", "smollm2", "-n", namespace)

    assert cluster.kubectl("get", *where, "-o", "jsonpath={.spec.replicas}").stdout == "1"
    cluster.kubectl("scale", *where, "--replicas=0")
    assert cluster.kubectl("get", *where, "-o", "jsonpath={.spec.replicas}").stdout == "0"


def test_explain_tells_what_a_field_is(cluster: Cluster) -> None:
    assert "Sequences that are computed together" in cluster.kubectl("explain", "llmd.spec.buildConfig").stdout
