"""What the tests on a real control plane share."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator

import pytest
from kubernetes.aio.client import Configuration

from tests.cluster.cluster import Cluster
from tests.cluster.paths import REPOSITORY
from tests.cluster.prerequisites import Tier
from tests.gitops.judge import every_status_judged
from trtllm_operator.cluster.client import Client
from trtllm_operator.cluster.connection import configure

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane of this session's own, with our definitions."""
    with Cluster.up(Tier.APISERVER, f"apiserver-{os.getpid()}") as cluster:
        cluster.define(REPOSITORY / "crds")
        yield cluster


@pytest.fixture(scope="session", autouse=True)
def _every_status_is_judged(cluster: Cluster) -> Iterator[None]:
    with every_status_judged(cluster):
        yield


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """An empty namespace of this test's own."""
    name = f"test-{next(_NUMBERS)}"
    cluster.kubectl("create", "namespace", name)
    return name


@pytest.fixture
async def configuration(cluster: Cluster) -> Configuration:
    """How an administrator reaches the cluster."""
    return await configure(str(cluster.kubeconfig))


@pytest.fixture
async def client(configuration: Configuration) -> AsyncIterator[Client]:
    client = Client(configuration)
    yield client
    await client.close()
