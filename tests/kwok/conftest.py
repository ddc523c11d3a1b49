"""A real control plane with a real scheduler; its nodes, and what pods do there, are kwok's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import fake_nodes
from tests.cluster.cluster import Cluster
from tests.cluster.paths import REPOSITORY
from tests.cluster.prerequisites import Tier
from tests.gitops.judge import every_status_judged
from tests.kwok.stages import stages
from tests.kwok.world import Nodes, World
from tests.operator_process import OperatorProcess


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster.up(Tier.APISERVER, f"kwok-{os.getpid()}", scheduler=True) as cluster:
        cluster.define(REPOSITORY / "crds")
        cluster.start_provisioner()
        fake_nodes.start(cluster, stages())
        with every_status_judged(cluster):
            yield cluster


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[Nodes]:
    """None at first; a test adds those that it is about, and they go with it."""
    nodes = Nodes(cluster)
    yield nodes
    nodes.remove_all()


@pytest.fixture
def world(cluster: Cluster, nodes: Nodes, request: pytest.FixtureRequest) -> Iterator[World]:
    """A namespace with nothing but the claim that models are read from."""
    world = World.create(cluster, request.node.name)
    world.claim_folder("models", size="1Gi")
    yield world
    world.delete()


@pytest.fixture
def operator(cluster: Cluster, world: World, tmp_path: Path) -> Iterator[OperatorProcess]:
    # The volume of an engine comes when its pod has a node. Of a pod that found its claim still unbound, this scheduler
    # now and then misses that it got bound in the meantime, and looks again after five minutes only.
    config = {"toolchain": "torch", "storageClass": "local-late"}
    with OperatorProcess(cluster.kubeconfig, tmp_path, config) as process:
        yield process
