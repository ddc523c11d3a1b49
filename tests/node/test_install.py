"""The chart, installed by the real Helm: the operator runs from its image, with the rights that the chart grants."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster.binaries import binary
from tests.cluster.cluster import Cluster
from tests.cluster.images import Images
from tests.node.world import Namespace, deployment
from tests.operator_process import REPOSITORY

RELEASE: Final = "trtllm-operator"
SYSTEM: Final = "trtllm-operator-system"


@pytest.fixture
def installed(cluster: Cluster, images: Images) -> Iterator[Cluster]:
    """A release with the images of this checkout; gone at the end, but for the definitions, which it keeps."""

    def helm(*arguments: str) -> None:
        environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}
        argv = [str(binary("helm")), *arguments, "--namespace", SYSTEM]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    values = []
    for value, image in (("image", images.operator), ("engineImage", images.engine)):
        repository, _, tag = image.rpartition(":")
        values += ["--set", f"{value}.repository={repository}", "--set", f"{value}.tag={tag}"]
    chart = str(REPOSITORY / "charts" / RELEASE)
    # The other tests of the tier have applied the definitions already.
    helm("install", RELEASE, chart, "--create-namespace", "--take-ownership", "--wait", "--timeout=2m", *values)
    yield cluster
    helm("uninstall", RELEASE, "--wait")
    cluster.kubectl("delete", "namespace", SYSTEM)


def test_helm_installs_an_operator_that_does_the_whole_job(installed: Cluster, namespace: Namespace) -> None:
    namespace.apply(deployment("helmed"))
    namespace.wait_ready("llmdeployment", "helmed")
    assert namespace.complete("helmed", "the engine")["usage"]["completion_tokens"] > 0
    log = installed.kubectl("-n", SYSTEM, "logs", f"deployment/{RELEASE}").stdout
    assert "is forbidden: User" not in log, "no call was refused for want of a right"
