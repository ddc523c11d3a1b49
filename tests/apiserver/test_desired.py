"""What we make, in a real API server: it is accepted, and read back it does not differ from what we want (I6)."""

from __future__ import annotations

import json

import pytest

from tests.cluster.cluster import Cluster
from tests.golden.test_manifests import MANIFESTS
from trtllm_operator.cluster.client import Client
from trtllm_operator.cluster.kinds import KINDS
from trtllm_operator.desired.diff import first_difference

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("name", MANIFESTS)
async def test_a_manifest_reads_back_as_it_was_written(client: Client, namespace: str, name: str) -> None:
    manifest = MANIFESTS[name]()
    manifest["metadata"]["namespace"] = namespace

    write = client.apply if "patch" in KINDS[manifest["kind"]].verbs else client.create
    # What the server answers is what it stored; a moment later the garbage collector misses the owner, and it is gone.
    live = await write(manifest)
    assert live is not None
    assert first_difference(manifest, live) is None


@pytest.mark.parametrize("name", ["fetch_job_hub", "build_job", "statefulset"])
def test_pod_security_restricted_admits_our_pods(cluster: Cluster, namespace: str, name: str) -> None:
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    spec = {**MANIFESTS[name]()["spec"]["template"]["spec"], "priorityClassName": ""}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ours", "namespace": namespace}, "spec": spec}

    cluster.kubectl("create", "--dry-run=server", "-f-", input=json.dumps(pod))
