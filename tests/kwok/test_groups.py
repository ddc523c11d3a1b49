"""Groups of two nodes with eight GPUs each: they come up whole, roll, fail and come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster.waiting import wait_until
from tests.gitops.recorder import Recorder, Seen
from tests.kwok.stages import BROKEN
from tests.kwok.world import L4, Nodes, World, two_nodes
from tests.node.world import Object, condition, deployment, is_ready
from tests.operator_process import OperatorProcess
from trtllm_operator.api.names import API_VERSION


def test_a_group_takes_a_node_for_each_of_its_pods(operator: OperatorProcess, nodes: Nodes, world: World) -> None:
    nodes.add(2)
    world.apply(two_nodes())
    ready = world.wait_ready("llmdeployment", "wide")
    pods = world.servers()
    assert sorted(p["metadata"]["name"] for p in pods) == ["wide-0-0", "wide-0-1"]
    assert len({p["spec"]["nodeName"] for p in pods}) == 2
    assert {p["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for p in pods} == {"8"}
    assert ready["status"]["mapping"]["worldSize"] == 16
    assert ready["status"]["display"]["parallel"] == "tp8·pp2"


@contextmanager
def recorded(world: World) -> Iterator[tuple[Recorder, Recorder]]:
    """Every version of the namespace's groups, and of its deployments, from what there is now on."""
    groups = Recorder(world.cluster, f"/apis/apps/v1/namespaces/{world.name}/statefulsets")
    deployments = Recorder(world.cluster, f"/apis/{API_VERSION}/namespaces/{world.name}/llmdeployments")
    with groups, deployments:
        wait_until(lambda: groups.seen and deployments.seen, "the watches to begin", 30)
        yield groups, deployments


def roll_out(world: World, **spec: Any) -> tuple[list[Seen], list[Seen]]:
    """Change a deployment that serves, and wait until the new revision serves alone: what its groups, and it, went
    through."""
    before = world.wait_ready("llmdeployment", "wide")["status"]["currentRevision"]
    with recorded(world) as (groups, deployments):
        world.apply(two_nodes(**spec, serving={"drainSeconds": 1}))

        def done(obj: Object) -> bool:
            return is_ready(obj) and before not in world.revisions()

        end = version(world.wait("llmdeployment", "wide", done, "rolled out"))
        wait_until(lambda: end in {version(s.obj) for s in deployments.seen}, "the watch to have told the end", 30)
        return list(groups.seen), list(deployments.seen)


def version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def side_by_side(told: Sequence[Seen]) -> int:
    """The most groups that there ever were at once."""
    there: set[str] = set()
    most = 0
    for each in told:
        uid = each.obj["metadata"]["uid"]
        there = there - {uid} if each.event == "DELETED" else there | {uid}
        most = max(most, len(there))
    return most


def test_with_room_for_one_more_group_the_new_one_is_ready_before_the_old_one_goes(
    operator: OperatorProcess, nodes: Nodes, world: World
) -> None:
    nodes.add(4)
    world.apply(two_nodes())
    told, _ = roll_out(world)
    old, new = dict.fromkeys(each.obj["metadata"]["uid"] for each in told)
    leaves = next(n for n, g in enumerate(told) if g.obj["metadata"]["uid"] == old and is_leaving(g))
    ready = next(n for n, g in enumerate(told) if g.obj["metadata"]["uid"] == new and is_whole(g))
    assert ready < leaves
    assert side_by_side(told) == 2


def is_leaving(group: Seen) -> bool:
    return "deletionTimestamp" in group.obj["metadata"] or group.event == "DELETED"


def is_whole(group: Seen) -> bool:
    return bool(group.obj["status"].get("readyReplicas") == group.obj["spec"]["replicas"])


def test_without_a_spare_gpu_groups_are_replaced_one_by_one(
    operator: OperatorProcess, nodes: Nodes, world: World
) -> None:
    nodes.add(4)
    world.apply(two_nodes(replicas=2))
    told, statuses = roll_out(world, replicas=2)
    assert side_by_side(told) == 2, "there are GPUs for two"
    assert min(each.obj["status"]["readyReplicas"] for each in statuses) == 1, "never both at once"
    notes = {condition(each.obj, "Ready").get("message", "") for each in statuses}
    assert any("one by one" in note for note in notes), notes


@pytest.mark.parametrize("spare", [True, False], ids=["with a spare pair of nodes", "without a spare GPU"])
def test_a_revision_that_cannot_start_falls_back_to_what_served(
    spare: bool, operator: OperatorProcess, nodes: Nodes, world: World
) -> None:
    nodes.add(4 if spare else 2)
    world.apply(two_nodes())
    before = world.wait_ready("llmdeployment", "wide")["status"]["currentRevision"]
    world.apply(two_nodes(serving={"image": BROKEN}))
    world.wait_stalled("llmdeployment", "wide")

    def served(obj: Object) -> bool:
        return obj["status"]["readyReplicas"] == 1 and world.revisions() == {before}

    stalled = world.wait("llmdeployment", "wide", served, "served by the old revision alone")
    told = condition(stalled, "Stalled")
    assert told["reason"] == "RolledBack"
    assert before in told["message"] and "no such command" in told["message"]
    assert condition(stalled, "Available")["status"] == "True"
    world.apply(two_nodes())
    world.wait("llmdeployment", "wide", is_ready, "Ready again", 60)


def test_a_deployment_takes_gpus_of_the_product_that_it_names_and_waits_where_there_are_not_enough(
    operator: OperatorProcess, nodes: Nodes, world: World
) -> None:
    h100 = nodes.add(1)
    l4 = set(nodes.add(1, L4, gpus=2))
    world.apply(deployment("small", replicas=3, dtype="bfloat16", engine=on(L4)))

    def counted(obj: Object) -> bool:
        ready = condition(obj, "Ready")
        return ready.get("reason") == "WaitingForGPUs" and "0 of 2 are free on 1 node(s)" in ready["message"]

    waits = world.wait("llmdeployment", "small", counted, "short of one GPU, and told who holds them", 60)
    assert condition(waits, "Reconciling")["status"] == "True"
    assert waits["status"]["display"]["ready"] == "2/3"
    assert f"held by {world.name}/small-" in condition(waits, "Ready")["message"]
    assert {p["spec"].get("nodeName") for p in world.servers()} == {*l4, None}
    assert h100, "eight GPUs of the other product stay free"

    nodes.add(1, L4, gpus=2)
    world.wait("llmdeployment", "small", is_ready, "Ready", 60)


def on(product: str) -> Object:
    """The engine of nodes with this GPU."""
    return {"toolchain": "torch", "storage": {"size": "1Gi"}, "target": {"gpuProduct": product}}


def test_twenty_deployments_that_ask_for_one_engine_make_one_build(
    operator: OperatorProcess, nodes: Nodes, world: World
) -> None:
    nodes.add(3)
    names = [f"same-{n:02}" for n in range(20)]
    world.apply(*(deployment(name) for name in names))
    for name in names:
        world.wait_ready("llmdeployment", name)
    builds = [j for j in world.list("job") if j["metadata"]["name"].startswith("build-")]
    assert len(builds) == 1
    assert len(world.list("llmengine")) == 1
    assert len([c for c in world.list("pvc") if c["metadata"]["name"].startswith("engine-")]) == 1


@pytest.mark.parametrize("propagation", ["foreground", "background", "orphan"])
def test_deletion_of_a_group_of_two_nodes_ends(
    propagation: str, operator: OperatorProcess, nodes: Nodes, world: World
) -> None:
    nodes.add(2)
    world.apply(two_nodes())
    world.wait_ready("llmdeployment", "wide")
    world.kubectl("delete", "llmdeployment", "wide", f"--cascade={propagation}", "--timeout=60s")
    if propagation == "orphan":
        assert len(world.servers()) == 2, "orphans are left to their fate"
    else:
        wait_until(lambda: not world.servers(), "the pods to be gone", 30)
