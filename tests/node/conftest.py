"""A real node with both real images, and for each test a namespace with models on a volume.

The cluster is shared by the tier and named `node-tests`; KEEP_CLUSTER=1 leaves it up for a look around, and for a
faster next run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.images import Images, build_images
from tests.cluster.prerequisites import Tier
from tests.cluster.waiting import wait_until
from tests.gitops.judge import every_status_judged
from tests.models import SMOLLM2, default_cache, smollm2, tiny_llama
from tests.node.world import Namespace
from tests.operator_process import REPOSITORY, OperatorProcess

TINY: Final = "tiny"


@pytest.fixture(scope="session")
def images() -> Images:
    return build_images()


@pytest.fixture(scope="session")
def cluster(images: Images) -> Iterator[Cluster]:
    cluster = Cluster.up(Tier.NODE, "node-tests")
    try:
        for image in (images.engine, images.operator):
            cluster.load(image)
        cluster.define(REPOSITORY / "crds")
        yield cluster
    finally:
        if not os.environ.get("KEEP_CLUSTER"):
            cluster.down()


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models that tests put on volumes: a tiny random one, and the small real one."""
    folder = tmp_path_factory.mktemp("checkpoints")
    tiny_llama(folder / TINY)
    (folder / SMOLLM2).symlink_to(smollm2(default_cache()))
    return folder


@pytest.fixture(scope="session")
def operator_config(images: Images) -> dict[str, object]:
    return {
        "engineImage": images.engine,
        "toolchain": "torch",
        "buildCpu": "100m",
        "buildMemory": "256Mi",
    }


@pytest.fixture
def operator(cluster: Cluster, operator_config: dict[str, object], tmp_path: Path) -> Iterator[OperatorProcess]:
    """The operator as a process, started; it is stopped at the end whatever happened to it."""
    with OperatorProcess(cluster.kubeconfig, tmp_path, operator_config) as process:
        yield process


@pytest.fixture
def namespace(cluster: Cluster, checkpoints: Path, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A fresh namespace whose claim `models` holds the checkpoints."""
    world = Namespace.create(cluster, request.node.name)
    folder = world.claim_folder("models", size="1Gi")
    for model in checkpoints.iterdir():
        shutil.copytree(model.resolve(), folder / model.name, copy_function=_link_or_copy)
    for path in [folder, *folder.rglob("*")]:
        # The pods are another user; what wrote the checkpoints keeps them to itself.
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield world
    world.delete()


def _link_or_copy(source: str, target: str) -> None:
    """Weights are read only, so a second name for the same bytes will do; `corrupt` writes a new file."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="session", autouse=True)
def _cluster_answers(cluster: Cluster) -> None:
    wait_until(lambda: "ok" in cluster.kubectl("get", "--raw", "/readyz", check=False).stdout, "the API server", 30)


@pytest.fixture(scope="session", autouse=True)
def _every_status_is_judged(cluster: Cluster) -> Iterator[None]:
    with every_status_judged(cluster):
        yield
