"""Free GPUs are counted where the pods may go, once each, and what is missing is named with who holds it."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.api.placement import NodeView, PlacedPod, PodDemand
from trtllm_operator.decide.gpus import Gpus, free_groups, shortage

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int, *, labels: dict[str, str] | None = None, **more: Any) -> NodeView:
    spec = {"taints": more.get("taints", []), "unschedulable": more.get("cordoned", False)}
    ready = {"type": "Ready", "status": "True" if more.get("ready", True) else "Unknown"}
    return NodeView.of(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": spec,
            "status": {"allocatable": {GPU: str(gpus), "cpu": "64", "rdma/hca": "4"}, "conditions": [ready]},
        }
    )


def held(name: str, on: str, gpus: int) -> PlacedPod:
    return PlacedPod(namespace="prod", name=name, node=on, amounts={GPU: gpus})


def wants(gpus: int, **more: Any) -> PodDemand:
    spec = {"containers": [{"resources": {"limits": {GPU: str(gpus), "memory": "1Gi"}}}]}
    return PodDemand.of(spec | more)


def count(*nodes: NodeView, demand: PodDemand | None = None, pods: int = 1, **more: Any) -> int:
    return free_groups(
        Gpus(nodes=nodes, placed=more.get("placed", ()), promised=more.get("promised", ())), demand or wants(1), pods
    )


def test_what_pods_hold_is_not_free() -> None:
    assert count(node("a", 8)) == 8
    assert count(node("a", 8), placed=(held("x", "a", 5),)) == 3
    assert count(node("a", 8), node("b", 8), demand=wants(4), placed=(held("x", "a", 5),)) == 2


def test_what_was_promised_to_others_is_counted_once_and_not_again() -> None:
    assert count(node("a", 2), promised=(wants(1),)) == 1
    assert count(node("a", 2), node("b", 8), demand=wants(8), promised=(wants(1),)) == 1, "it goes where it fits best"
    assert count(node("a", 2), promised=(wants(1, nodeSelector={"zone": "z"}),)) == 2, "it goes elsewhere"


@pytest.mark.parametrize(
    "unfit",
    [
        node("a", 8, ready=False),
        node("a", 8, cordoned=True),
        node("a", 8, taints=[{"key": "gpu", "effect": "NoSchedule"}]),
        node("a", 8, labels={"nvidia.com/gpu.product": "NVIDIA-L4"}),
        node("a", 0),
    ],
)
def test_a_node_where_the_pods_may_not_go_has_nothing_free(unfit: NodeView) -> None:
    demand = wants(1, nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100"})
    fitting = node("b", 2, labels={"nvidia.com/gpu.product": "NVIDIA-H100"})
    assert count(unfit, fitting, demand=demand) == 2


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "gpu", "operator": "Exists"},
        {"operator": "Exists"},
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
    ],
)
def test_a_tolerated_taint_keeps_nobody_away(toleration: dict[str, str]) -> None:
    tainted = node("a", 3, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    assert count(tainted) == 0
    assert count(tainted, demand=wants(1, tolerations=[toleration])) == 3
    assert count(tainted, demand=wants(1, tolerations=[{"key": "gpu", "value": "no"}])) == 0


def test_a_group_of_several_pods_needs_as_many_nodes() -> None:
    assert count(node("a", 16), demand=wants(8), pods=2) == 0, "one node cannot serve a group twice"
    assert count(node("a", 8), node("b", 8), demand=wants(8), pods=2) == 1
    assert count(node("a", 16), node("b", 8), node("c", 8), demand=wants(8), pods=2) == 2
    assert count(node("a", 16), node("b", 8), demand=wants(8), pods=2) == 1


def test_every_extended_resource_counts() -> None:
    demand = PodDemand.of({"containers": [{"resources": {"limits": {GPU: "1", "rdma/hca": "2"}}}]})
    assert count(node("a", 8), demand=demand) == 2


def test_init_containers_and_sidecars_count_as_for_the_scheduler() -> None:
    def container(gpus: int, **more: str) -> dict[str, Any]:
        return {"resources": {"limits": {GPU: str(gpus)}}, **more}

    sidecar = container(1, restartPolicy="Always")
    assert PodDemand.of({"containers": [container(2)], "initContainers": [container(4)]}).amounts == {GPU: 4}
    assert PodDemand.of({"containers": [container(2)], "initContainers": [sidecar]}).amounts == {GPU: 3}


def test_a_shortage_names_what_is_missing_and_who_holds_it() -> None:
    pods = tuple(held(f"chat-{n}-0", "a", 1) for n in range(6))
    text = shortage(Gpus(nodes=(node("a", 8), node("b", 0)), placed=(held("train", "a", 2), *pods)), wants(1), 1)
    assert text.startswith(
        f"a replica needs 1 {GPU}; 0 of 8 are free on 1 node(s) that match; held by prod/train (2), "
    )
    assert text.endswith("and 3 more")
