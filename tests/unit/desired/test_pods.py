"""Every pod that we make is one that Pod Security "restricted" admits, and sees no more than it needs."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import (
    COMMIT,
    HUB,
    a_deployment,
    a_deployment_spec,
    a_resolution,
    an_engine,
    an_engine_spec,
    some_defaults,
)
from trtllm_engine.contract import CONTRACT, BuildRequest, FetchRequest, ServeRequest
from trtllm_operator.api import names
from trtllm_operator.desired.build_job import build_job
from trtllm_operator.desired.controller_revision import freeze
from trtllm_operator.desired.fetch_job import fetch_job
from trtllm_operator.desired.pdb import disruption_budget
from trtllm_operator.desired.service import headless
from trtllm_operator.desired.statefulset import pod_template, statefulset

Json = dict[str, Any]
TOKEN = {"name": "hf", "key": "token"}


def fetch_pod(**spec: Any) -> Json:
    return fetch_job(a_deployment(**spec), some_defaults())["spec"]["template"]  # type: ignore[no-any-return]


def build_pod(**spec: Any) -> Json:
    engine = an_engine(**spec)
    resolution = a_resolution(
        an_engine_spec(**spec), commit=COMMIT if "/models" not in engine.valid_spec.model else None
    )
    return build_job(engine, resolution, some_defaults())["spec"]["template"]  # type: ignore[no-any-return]


def serving_pod(**spec: Any) -> Json:
    return pod_template(a_deployment(**spec), a_resolution(a_deployment_spec(**spec)), some_defaults())


ALL = pytest.mark.parametrize("make", [fetch_pod, build_pod, serving_pod])


def container(pod: Json) -> Json:
    (only,) = pod["spec"]["containers"]
    return only  # type: ignore[no-any-return]


def mounts(pod: Json) -> dict[str, str]:
    return {m["mountPath"]: "ro" if m.get("readOnly") else "rw" for m in container(pod)["volumeMounts"]}


def environment(pod: Json) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(pod)["env"]}


@ALL
def test_no_pod_has_privilege_or_a_token(make: Any) -> None:
    pod = make()["spec"]

    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"persistentVolumeClaim", "emptyDir", "downwardAPI"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


@ALL
def test_all_pods_share_user_and_group(make: Any) -> None:
    security = make()["spec"]["securityContext"]

    assert {security["runAsUser"], security["runAsGroup"], security["fsGroup"]} == {10001}
    assert security["fsGroupChangePolicy"] == "OnRootMismatch"


def test_each_pod_writes_only_where_it_must() -> None:
    assert mounts(fetch_pod()) == {"/models": "ro", "/tmp": "rw", "/etc/trtllm-engine": "ro"}
    assert mounts(fetch_pod(**HUB)) == {"/cache": "rw", "/tmp": "rw", "/etc/trtllm-engine": "ro"}
    assert mounts(build_pod()) == {"/models": "ro", "/store": "rw", "/tmp": "rw", "/etc/trtllm-engine": "ro"}
    assert mounts(build_pod(**HUB)) == {"/cache": "ro", "/store": "rw", "/tmp": "rw", "/etc/trtllm-engine": "ro"}
    assert mounts(serving_pod()) == {"/store": "ro", "/tmp": "rw", "/dev/shm": "rw", "/etc/trtllm-engine": "ro"}


def test_the_users_files_keep_their_group() -> None:
    """The kubelet changes the group of a volume's files unless the volume itself is read-only."""
    (volume,) = (v for v in fetch_pod()["spec"]["volumes"] if v["name"] == "models")

    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}


def test_only_the_pod_that_fetches_sees_the_token_and_the_hub() -> None:
    secret = {"secretKeyRef": TOKEN}

    assert environment(fetch_pod(**HUB, hubTokenSecretRef=TOKEN))["HF_TOKEN"] == secret
    for pod in (build_pod(**HUB, hubTokenSecretRef=TOKEN), serving_pod(hubTokenSecretRef=TOKEN)):
        assert "HF_TOKEN" not in environment(pod)
        assert environment(pod)["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize(
    ("pod", "message"), [(fetch_pod(), FetchRequest), (build_pod(), BuildRequest), (serving_pod(), ServeRequest)]
)
def test_the_request_travels_in_the_annotation_that_is_mounted(pod: Json, message: Any) -> None:
    request = message.from_json(pod["metadata"]["annotations"][names.REQUEST_ANNOTATION])
    (item,) = next(v for v in pod["spec"]["volumes"] if v["name"] == "request")["downwardAPI"]["items"]

    assert request.contract == CONTRACT
    assert item["fieldRef"] == {"fieldPath": f"metadata.annotations['{names.REQUEST_ANNOTATION}']"}
    assert item["path"] == "request.json"


def test_serving_pods_ask_for_gpus_unless_they_compute_on_the_cpu() -> None:
    assert container(serving_pod())["resources"] == {
        "requests": {"nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    assert container(serving_pod(gpu={"resourceName": "example.com/gpu"}))["resources"]["limits"] == {
        "example.com/gpu": "1"
    }
    assert "resources" not in container(serving_pod(serving={"device": "cpu"}))


def test_build_pods_ask_for_a_gpu_only_where_the_toolchain_needs_one() -> None:
    assert container(build_pod())["resources"] == {"requests": {"cpu": "500m", "memory": "2Gi"}}


def test_a_limit_of_the_user_is_not_exceeded_by_a_default_request() -> None:
    resources = container(build_pod(resources={"limits": {"memory": "1Gi"}}))["resources"]

    assert resources == {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}


@pytest.mark.parametrize("where", ["fetch", "build", "serve"])
def test_all_pods_of_a_spec_run_where_its_servers_can(where: str) -> None:
    placed: Json = {
        "scheduling": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    }
    target = {"computeCapability": "8.9", "gpuProduct": "NVIDIA-L4"}
    pod = {
        "fetch": lambda: fetch_pod(**placed, engine={"target": target}),
        "build": lambda: build_pod(**placed, target=target),
        "serve": lambda: serving_pod(**placed, engine={"target": target}),
    }[where]()

    assert pod["spec"]["nodeSelector"] == {"zone": "a", "nvidia.com/gpu.product": "NVIDIA-L4"}
    assert pod["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_a_loading_server_is_not_killed_within_its_budget() -> None:
    startup = container(serving_pod(serving={"startupSeconds": 301}))["startupProbe"]

    assert startup["periodSeconds"] * startup["failureThreshold"] >= 301
    assert container(serving_pod())["startupProbe"]["failureThreshold"] == 360
    assert container(serving_pod())["livenessProbe"]["httpGet"]["path"] == "/livez"


def test_a_draining_server_has_time_for_its_requests() -> None:
    assert serving_pod()["spec"]["terminationGracePeriodSeconds"] == 70
    assert serving_pod(serving={"drainSeconds": 0})["spec"]["terminationGracePeriodSeconds"] == 60
    request = ServeRequest.from_json(
        serving_pod(serving={"drainSeconds": 0})["metadata"]["annotations"][names.REQUEST_ANNOTATION]
    )
    assert request.drain_seconds == 0


def test_a_users_labels_come_along_and_never_win() -> None:
    labels = serving_pod(podTemplate={"labels": {"team": "search"}})["metadata"]["labels"]

    assert labels["team"] == "search"
    assert labels[names.ROLE_LABEL] == "server"


def test_a_group_is_made_from_the_frozen_revision_alone() -> None:
    """A newer operator has other defaults; what serves stays as it is."""
    deployment, resolution = a_deployment(), a_resolution()
    frozen = freeze(deployment, resolution, some_defaults())
    later = a_deployment(serving={"port": 9000}, podTemplate={"labels": {"new": "one"}})

    assert statefulset(later, frozen, 2) == statefulset(deployment, frozen, 2)
    assert json.dumps(statefulset(deployment, frozen, 2)) == json.dumps(statefulset(deployment, frozen, 2))


def test_a_group_selects_only_pods_of_its_own_revision() -> None:
    deployment = a_deployment()
    group = statefulset(deployment, freeze(deployment, a_resolution(), some_defaults()), 1)
    selector = group["spec"]["selector"]["matchLabels"]

    assert selector.items() <= group["spec"]["template"]["metadata"]["labels"].items()
    assert set(selector) == {names.DEPLOYMENT_LABEL, names.REVISION_LABEL, names.ORDINAL_LABEL, names.ROLE_LABEL}


def test_all_pods_of_a_group_start_together_on_a_node_each() -> None:
    """They find each other by the headless Service, which publishes addresses before pods are ready."""
    deployment, resolution = a_deployment(), replace(a_resolution(), pods=2, gpus_per_pod=8)
    group = statefulset(deployment, freeze(deployment, resolution, some_defaults()), 3)
    (apart,) = group["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    labels = group["spec"]["template"]["metadata"]["labels"]

    assert group["spec"]["replicas"] == 2
    assert group["spec"]["podManagementPolicy"] == "Parallel"
    assert group["spec"]["serviceName"] == headless(deployment)["metadata"]["name"]
    assert headless(deployment)["spec"]["publishNotReadyAddresses"] is True
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"].items() <= labels.items()
    assert set(apart["matchLabelKeys"]) < set(labels), "only pods of the same group keep apart"
    assert "affinity" not in serving_pod()["spec"]


def test_a_drain_takes_one_server_at_a_time_and_a_broken_one_whenever_it_likes() -> None:
    budget = disruption_budget(a_deployment())["spec"]
    labels = serving_pod()["metadata"]["labels"]

    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert budget["selector"]["matchLabels"].items() <= labels.items()
