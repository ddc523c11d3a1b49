"""What we make, in a real API server: it is accepted, and read back it does not differ from what we want (I6)."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import Cluster
from tests.golden.test_manifests import MANIFESTS
from trtllm_operator.cluster.client import Client
from trtllm_operator.desired.diff import first_difference

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("name", MANIFESTS)
async def test_a_manifest_reads_back_as_it_was_written(
    client: Client, cluster: Cluster, namespace: str, name: str
) -> None:
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    manifest = MANIFESTS[name]()
    manifest = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}

    await client.apply(manifest)

    live = await client.get(manifest["kind"], namespace, manifest["metadata"]["name"])
    assert live is not None
    assert first_difference(manifest, live) is None
