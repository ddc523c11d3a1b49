"""A node runs real pods, and its removal undoes all that it did to the machine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, Tier, build_images
from tests.cluster.cgroups import ControlGroup
from tests.cluster.node import mounts_below
from tests.cluster.paths import RUN
from tests.cluster.waiting import wait_until

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRTLLM_OPERATOR_STATE", str(tmp_path_factory.mktemp("state")))
        images = build_images()
        with Cluster.up(Tier.NODE, "node", gpus=8) as running:
            running.load(images.operator)
            yield running


def pod(name: str, *command: str, gpus: int = 0, claim: str | None = None) -> str:
    """A pod of the operator's image, as Pod Security "restricted" wants it."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    mounts = [{"name": "data", "mountPath": "/data"}] if claim else []
    container = {
        "name": "main",
        "image": "localhost/trtllm-operator:dev",
        "command": list(command),
        "resources": {"limits": {"nvidia.com/gpu": gpus}} if gpus else {},
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": volumes,
    }
    meta = {"name": name, "labels": {"app": name}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def run(cluster: Cluster, name: str, *command: str, claim: str | None = None) -> str:
    """Run a pod to its end and return what it printed."""
    cluster.kubectl("apply", "-f-", input=pod(name, *command, claim=claim))
    cluster.kubectl("wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    return cluster.kubectl("logs", name).stdout


def test_a_pod_runs_as_the_images_user_and_prints(cluster: Cluster) -> None:
    assert run(cluster, "who", "python3", "-c", "import os; print(os.getuid())") == "65532\n"


def test_a_command_runs_inside_a_pod(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f-", input=pod("idle", "sleep", "600"))
    cluster.kubectl("wait", "pod/idle", "--for=condition=Ready", "--timeout=60s")
    assert cluster.kubectl("exec", "idle", "--", "cat", "/proc/1/comm").stdout == "sleep\n"


def test_a_service_is_reached_by_name_from_pods_and_by_address_from_the_machine(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f-", input=pod("web", "python3", "-m", "http.server", "8080", "-d", "/etc"))
    cluster.kubectl("expose", "pod", "web", "--port=80", "--target-port=8080")
    cluster.kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=60s")
    read = "import urllib.request as r; print(r.urlopen('http://web.default.svc/debian_version', timeout=20).read())"
    assert "12" in run(cluster, "client", "python3", "-c", read)
    address = cluster.kubectl("get", "service", "web", "-o=jsonpath={.spec.clusterIP}").stdout
    curl = ["python3", "-c", read.replace("web.default.svc", address)]
    assert "12" in subprocess.run(curl, capture_output=True, text=True, check=True).stdout


def test_a_pod_reaches_the_api_server_with_its_own_token(cluster: Cluster) -> None:
    ask = """
import ssl, urllib.request as r
home = "/var/run/secrets/kubernetes.io/serviceaccount/"
request = r.Request("https://kubernetes.default.svc/version")
request.add_header("Authorization", "Bearer " + open(home + "token").read())
print(r.urlopen(request, context=ssl.create_default_context(cafile=home + "ca.crt"), timeout=20).read().decode())
"""
    assert json.loads(run(cluster, "inside", "python3", "-c", ask))["gitVersion"] == "v1.34.4"


def test_gpus_are_handed_out_up_to_their_number_also_after_a_restart_of_the_kubelet(cluster: Cluster) -> None:
    cluster.restart("kubelet")
    for name, gpus in (("six", 6), ("four", 4)):
        cluster.kubectl("apply", "-f-", input=pod(name, "sleep", "600", gpus=gpus))
        if name == "six":
            cluster.kubectl("wait", "pod/six", "--for=condition=Ready", "--timeout=60s")
    reason = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}"
    message = wait_until(lambda: cluster.kubectl("get", "pod", "four", f"-o={reason}").stdout, "a verdict", 20)
    assert "Insufficient nvidia.com/gpu" in message


@pytest.mark.parametrize("storage_class", [None, "local-late"], ids=["default class", "late class"])
def test_what_a_pod_writes_into_a_claim_is_seen_on_the_machine(cluster: Cluster, storage_class: str | None) -> None:
    name = f"claim-{storage_class or 'default'}"
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("apply", "-f-", input=json.dumps(claim))
    run(cluster, f"writer-of-{name}", "sh", "-c", "echo hello > /data/greeting", claim=name)
    folder = cluster.storage_folder("default", name)
    assert (folder / "greeting").read_text() == "hello\n"

    cluster.kubectl("delete", "pod", f"writer-of-{name}", "--wait")
    cluster.kubectl("delete", "pvc", name, "--wait")
    wait_until(lambda: not folder.exists(), "the folder to be deleted with its claim", 20)


@pytest.mark.parametrize("crash", [False, True], ids=["orderly", "after a crash"])
def test_down_undoes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: bool) -> None:
    monkeypatch.setenv("TRTLLM_OPERATOR_STATE", str(tmp_path / "state"))
    cluster = Cluster.up(Tier.NODE, "gone")
    number, group = cluster.settings.number, ControlGroup(cluster.network.namespace)
    cluster.load(build_images().operator)
    cluster.kubectl("apply", "-f-", input=pod("idle", "sleep", "600"))
    cluster.kubectl("wait", "pod/idle", "--for=condition=Ready", "--timeout=60s")
    assert group.processes("kubepods")
    assert mounts_below(tmp_path)
    if crash:
        group.kill("daemons")
    cluster.down()

    assert Cluster.find("gone") is None
    assert not group.exists()
    assert not (RUN / str(number)).exists()
    assert mounts_below(tmp_path, RUN / str(number)) == []
    assert f"trtllm-{number}" not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert f"trtllm{number}" not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert list((tmp_path / "state").iterdir()) == []
