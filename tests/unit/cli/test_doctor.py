"""The doctor finds each thing that is missing, names it, says what to do, and judges nothing that it may not see."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from tests.builders import merged
from trtllm_operator import __version__
from trtllm_operator.api.crd import crds
from trtllm_operator.cli.doctor import CHECKS, fields, has
from trtllm_operator.cli.rights import USER_KINDS
from trtllm_operator.cluster.certificate import Certificate

from .fake_cluster import FakeCluster, fake_cluster
from .harness import a_node, llmd, written

Json = dict[str, Any]
LABELS = {"app.kubernetes.io/name": "trtllm-operator", "app.kubernetes.io/component": "operator"}
DEFINITIONS: Final = crds()
HOME = "trtllm-operator-system"
CERTIFICATE: Final = Certificate.make(("x",), datetime.now(UTC))


def a_healthy(cluster: FakeCluster) -> None:
    """Everything that the doctor wants to see."""
    cluster.put(*DEFINITIONS.values())
    cluster.put(an_operator(), kind="OperatorDeployment")
    cluster.put(a_lease(), a_hook(CERTIFICATE), a_class("fast", default=True), a_gpu_node("gpu-a"))


def an_operator(*, ready: int = 1, version: str = __version__) -> Json:
    labels = {**LABELS, "app.kubernetes.io/version": version}
    meta = {"name": "trtllm-operator", "namespace": HOME, "labels": labels}
    return {"kind": "Deployment", "metadata": meta, "spec": {"replicas": 1}, "status": {"readyReplicas": ready}}


def a_lease(*, holder: str = "pod-1", age: timedelta = timedelta()) -> Json:
    renewed = (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    meta = {"name": "trtllm-operator", "namespace": HOME}
    return {"kind": "Lease", "metadata": meta, "spec": {"holderIdentity": holder, "renewTime": renewed}}


def a_hook(certificate: Certificate | None) -> Json:
    config = {} if certificate is None else {"caBundle": base64.b64encode(certificate.certificate).decode()}
    hook = {"name": "validate.inference.trtllm-operator.dev", "clientConfig": config}
    return {
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "trtllm-operator-webhook"},
        "webhooks": [hook],
    }


def a_class(name: str, *, default: bool = False) -> Json:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"kind": "StorageClass", "metadata": {"name": name, "annotations": annotations}}


def a_gpu_node(name: str, **changes: Any) -> Json:
    labels = {"nvidia.com/gpu.compute.major": "8", "nvidia.com/gpu.compute.minor": "9"}
    room = {"cpu": "8", "memory": "32Gi"}
    node = merged(a_node(name, gpus=8), {"metadata": {"labels": labels}, "status": {"allocatable": room}})
    return merged(node, changes)


def a_lacking_definition() -> Json:
    definition = copy.deepcopy(DEFINITIONS["llmdeployments.yaml"])
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["strategy"]["properties"]["restartBudget"]
    return definition


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with fake_cluster(tmp_path) as found:
        a_healthy(found)
        yield found


def run(cluster: FakeCluster, *arguments: str | Path) -> tuple[int, str]:
    result = llmd("doctor", "--kubeconfig", cluster.kubeconfig, *arguments)
    return result.exit_code, result.stdout


def test_a_healthy_cluster_has_a_mark_for_every_check(cluster: FakeCluster) -> None:
    code, text = run(cluster)
    assert code == 0
    assert text.splitlines() == [
        "✓ definitions: llmdeployments.inference.trtllm-operator.dev has every field of v1alpha1",
        "✓ definitions: llmengines.inference.trtllm-operator.dev has every field of v1alpha1",
        f"✓ operator: {HOME}/trtllm-operator: 1 of 1 replica ready",
        "✓ operator: pod-1 leads",
        f"✓ webhook: trusted until {end_of_certificate():%Y-%m-%d}",
        "✓ nodes: 8 GPUs on 1 node (Some-GPU)",
        "✓ nodes: 1 node can have 500m CPU and 2Gi of memory, the least that a build pod requests",
        "✓ storage: claims use fast",
    ]
    assert cluster.writes() == []


def end_of_certificate() -> datetime:
    return x509.load_pem_x509_certificate(CERTIFICATE.certificate).not_valid_after_utc


def gone(kind: str, name: str, namespace: str = "") -> Callable[[FakeCluster], None]:
    def remove(cluster: FakeCluster) -> None:
        del cluster.objects[USER_KINDS[kind].path(namespace, name)]

    return remove


def instead(obj: Json, kind: str | None = None) -> Callable[[FakeCluster], None]:
    return lambda cluster: cluster.put(obj, kind=kind)


@pytest.mark.parametrize(
    ("ill", "symptom", "remedy"),
    [
        (gone("CustomResourceDefinition", "llmengines.inference.trtllm-operator.dev"), "is missing", "crds/"),
        (instead(a_lacking_definition()), "lacks spec.strategy.restartBudget", "crds/"),
        (gone("OperatorDeployment", "trtllm-operator", HOME), "nothing is reconciled", "helm install"),
        (instead(an_operator(ready=0), "OperatorDeployment"), "none of 1 replica is ready", "logs deploy/"),
        (gone("Lease", "trtllm-operator", HOME), "no process has ever led", "logs"),
        (instead(a_lease(holder="")), "nobody leads", "logs"),
        (instead(a_lease(age=timedelta(minutes=5))), "has not renewed", "logs"),
        (instead(a_hook(None)), "no certificate", "log"),
        (instead(a_hook(Certificate.make(("x",), datetime(2020, 1, 1, tzinfo=UTC)))), "ended at", "log"),
        (instead(a_gpu_node("gpu-a", spec={"unschedulable": True})), "no node with GPUs takes pods: gpu-a", "uncordon"),
        (instead(a_gpu_node("gpu-a", status={"allocatable": {"memory": "1Gi"}})), "no node that takes pods", "larger"),
        (instead(a_class("fast")), "no class is the default: there are fast", "annotate"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy_and_exit_code_one(
    cluster: FakeCluster, ill: Callable[[FakeCluster], None], symptom: str, remedy: str
) -> None:
    ill(cluster)
    code, text = run(cluster)
    assert code == 1
    lines = text.splitlines()
    found = [number for number, line in enumerate(lines) if line.startswith("✗") and symptom in line]
    assert found, text
    assert remedy in lines[found[0] + 1]


@pytest.mark.parametrize(
    ("ill", "symptom"),
    [
        (gone("ValidatingWebhookConfiguration", "trtllm-operator-webhook"), "not installed"),
        (instead(an_operator(version="0.0.9"), "OperatorDeployment"), f"version 0.0.9; llmd is {__version__}"),
        (instead(a_gpu_node("gpu-a", status={"allocatable": {"nvidia.com/gpu": "0"}})), "only serving.device cpu"),
        (instead(a_gpu_node("gpu-a", metadata={"labels": {"nvidia.com/gpu.product": None}})), "which GPUs these are"),
    ],
)
def test_what_is_only_doubtful_ends_well(
    cluster: FakeCluster, ill: Callable[[FakeCluster], None], symptom: str
) -> None:
    ill(cluster)
    code, text = run(cluster)
    assert code == 0
    assert [line for line in text.splitlines() if line.startswith("!") and symptom in line], text


def test_what_the_user_may_not_read_is_not_judged(cluster: FakeCluster) -> None:
    cluster.refuse |= {"customresourcedefinitions", "deployments", "validatingwebhookconfigurations", "nodes"}
    code, text = run(cluster)
    assert code == 0
    assert [line.split(":")[0] for line in text.splitlines()] == [
        "? definitions",
        "? operator",
        "? webhook",
        "? nodes",
        "✓ storage",
    ]
    assert set(CHECKS) == {"definitions", "operator", "webhook", "nodes", "storage"}


def test_the_operators_configuration_says_which_class_is_needed(cluster: FakeCluster, tmp_path: Path) -> None:
    config = written(tmp_path / "config.yaml", "storageClass: slow\ncacheStorageClass: fast\n")
    code, text = run(cluster, "--config", config)
    assert code == 1
    assert "✗ storage: storageClass slow does not exist: there are fast" in text


def test_fields_inside_lists_count_as_well() -> None:
    schema = {"properties": {"a": {"items": {"properties": {"b": {}}}}, "c": {"properties": {"d": {}}}}}
    assert list(fields(schema)) == ["a", "a[].b", "c", "c.d"]


@pytest.mark.parametrize(("offered", "asked", "enough"), [("500m", "0.5", True), ("2Gi", "2G", True), (4, "5", False)])
def test_what_a_node_offers_is_compared_by_value(offered: Any, asked: str, enough: bool) -> None:
    assert has({"cpu": offered}, "cpu", asked) is enough
    assert not has({"cpu": "?"}, "cpu", asked)
    assert not has({}, "cpu", asked)
