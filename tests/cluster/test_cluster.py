"""A cluster comes up, survives faults, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cluster import Cluster, HarnessError, Tier
from tests.cluster.node import mounts_below
from tests.cluster.waiting import wait_until

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRTLLM_OPERATOR_STATE", str(tmp_path_factory.mktemp("state")))
        with Cluster.up(Tier.APISERVER, "harness") as running:
            yield running


def processes_that_mention(text: str) -> list[str]:
    """The command lines that hold a text."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text in command and int(file.parent.name) != os.getpid():
            found.append(command)
    return found


def test_starting_a_running_cluster_returns_it(cluster: Cluster) -> None:
    again = Cluster.up(Tier.APISERVER, "harness")
    assert again.settings == cluster.settings
    assert [each.name for each in Cluster.all()] == ["harness"]


def test_a_running_cluster_of_another_tier_is_refused(cluster: Cluster) -> None:
    with pytest.raises(HarnessError, match="runs with tier apiserver, not node; take another name"):
        Cluster.up(Tier.NODE, "harness")


def test_clients_see_the_real_version(cluster: Cluster) -> None:
    assert "v1.34.4" in cluster.kubectl("version").stdout


def test_controllers_run(cluster: Cluster) -> None:
    cluster.kubectl("create", "deployment", "web", "--image=none")
    pods = wait_until(lambda: cluster.kubectl("get", "pods", "-l=app=web", "-o=name").stdout, "a pod of web", 20)
    assert pods.startswith("pod/web-")
    cluster.kubectl("delete", "deployment", "web")


def test_only_the_administrator_has_rights_from_the_start(cluster: Cluster) -> None:
    def may(user: str) -> str:
        options = (f"--token={cluster.token(user)}", f"--kubeconfig={cluster.kubeconfig_of(user)}")
        return cluster.kubectl("auth", "can-i", "list", "secrets", *options, check=False).stdout.strip()

    assert (may("admin"), may("tenant"), may("viewer")) == ("yes", "no", "no")


def test_writes_are_found_in_the_audit_log(cluster: Cluster) -> None:
    start = datetime.now(UTC)
    cluster.kubectl("create", "configmap", "noted")
    cluster.kubectl("get", "configmap", "noted")
    cluster.kubectl("delete", "configmap", "noted")
    # A line is written a moment after the answer.
    wait_until(lambda: len(cluster.writes(start, "kubectl")) == 2, "both writes in the log", 10)
    noted = [(event.verb, event.name, event.user) for event in cluster.writes(start, "kubectl")]
    assert noted == [("create", "noted", "admin"), ("delete", "noted", "admin")]


@pytest.mark.parametrize("component", ["apiserver", "etcd", "controller-manager"])
def test_data_survives_the_restart_of_a_component(cluster: Cluster, component: str) -> None:
    cluster.kubectl("create", "configmap", f"before-{component}")
    cluster.restart(component)
    assert f"before-{component}" in cluster.kubectl("get", "configmaps", "-o=name").stdout
    cluster.kubectl("create", "configmap", f"after-{component}")


def test_an_unknown_component_is_refused_with_the_known_ones(cluster: Cluster) -> None:
    with pytest.raises(HarnessError, match=r"no component 'kubelet' .*; it has etcd, apiserver, controller-manager"):
        cluster.stop("kubelet")


def test_two_clusters_live_side_by_side(cluster: Cluster) -> None:
    with Cluster.up(Tier.APISERVER, "harness-2") as other:
        assert other.server_url != cluster.server_url
        other.kubectl("create", "configmap", "only-there")
        assert "only-there" not in cluster.kubectl("get", "configmaps", "-o=name").stdout
    assert cluster.running()


@pytest.mark.parametrize("crash", [False, True], ids=["orderly", "after a crash"])
def test_down_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: bool) -> None:
    monkeypatch.setenv("TRTLLM_OPERATOR_STATE", str(tmp_path / "state"))
    cluster = Cluster.up(Tier.APISERVER, "gone")
    assert processes_that_mention(str(cluster.folder))
    if crash:
        record = cluster.processes.record("etcd")
        assert record is not None
        record.identity.signal(signal.SIGKILL)
    cluster.down()
    assert Cluster.find("gone") is None
    assert processes_that_mention(str(tmp_path)) == []
    assert list((tmp_path / "state").iterdir()) == []
    assert mounts_below(tmp_path) == []


def test_a_crashed_cluster_is_replaced_by_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRTLLM_OPERATOR_STATE", str(tmp_path / "state"))
    first = Cluster.up(Tier.APISERVER, "phoenix")
    first.stop("apiserver")
    with Cluster.up(Tier.APISERVER, "phoenix") as second:
        assert second.running()
        assert second.token("admin") != first.settings.name
    assert processes_that_mention(str(tmp_path)) == []
