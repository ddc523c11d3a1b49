"""Logs and events: everything that belongs to a deployment, in order, each line with its source; nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_operator.cli.cluster import lines_of

from .fake_cluster import FakeCluster, fake_cluster
from .harness import llmd
from .running import a_builder, a_group, a_served_model, a_server, its_engine

Json = dict[str, Any]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with fake_cluster(tmp_path, "prod") as found:
        found.put(a_served_model(), its_engine())
        yield found


def run(cluster: FakeCluster, *arguments: str) -> tuple[int, list[str], str]:
    result = llmd(*arguments, "--kubeconfig", cluster.kubeconfig)
    return result.exit_code, result.stdout.splitlines(), result.stderr


def a_group_of_two(cluster: FakeCluster) -> None:
    cluster.put(a_group(0, ready=2, pods=2), a_server("llama-0", 1), a_server("llama-0", 0), a_server("other-0"))
    cluster.logs |= {"llama-0-0": "loaded\nready\n", "llama-0-1": "follows", "other-0-0": "not ours"}


def test_all_ranks_of_all_replicas_speak_in_order(cluster: FakeCluster) -> None:
    a_group_of_two(cluster)
    assert run(cluster, "logs", "llama") == (
        0,
        ["llama-0-0 | loaded", "llama-0-0 | ready", "llama-0-1 | follows"],
        "",
    )


def test_following_brings_the_same_lines(cluster: FakeCluster) -> None:
    a_group_of_two(cluster)
    code, lines, _ = run(cluster, "logs", "llama", "-f")
    assert code == 0
    assert sorted(lines) == ["llama-0-0 | loaded", "llama-0-0 | ready", "llama-0-1 | follows"]
    asked = [request.query for request in cluster.requests if request.path.endswith("/log")]
    assert asked == [{"follow": "true"}] * 2


def test_the_options_of_kubectl_reach_the_api_server(cluster: FakeCluster) -> None:
    a_group_of_two(cluster)
    run(cluster, "logs", "llama", "-p", "--tail", "5")
    asked = [request.query for request in cluster.requests if request.path.endswith("/log")]
    assert asked == [{"previous": "true", "tailLines": "5"}] * 2


def test_a_finished_build_still_tells_and_the_youngest_pod_of_a_rank_speaks_for_it(cluster: FakeCluster) -> None:
    a_group_of_two(cluster)
    old = a_builder(0, phase="Failed")
    old["metadata"] |= {"name": "build-0-old", "uid": "old", "creationTimestamp": "2026-01-01T00:00:00Z"}
    cluster.put(a_builder(1, phase="Succeeded"), a_builder(0, phase="Succeeded"), old)
    cluster.logs |= {"build-0": "zero", "build-1": "one", "build-0-old": "old"}
    assert run(cluster, "logs", "llama", "--build")[1] == ["build-0 | zero", "build-1 | one"]


def test_before_there_are_servers_the_build_speaks(cluster: FakeCluster) -> None:
    cluster.put(a_builder(0))
    cluster.logs["build-0"] = "weights"
    assert run(cluster, "logs", "llama")[1] == ["build-0 | weights"]


def test_a_pod_that_has_not_started_is_named_and_the_others_speak(cluster: FakeCluster) -> None:
    a_group_of_two(cluster)
    del cluster.logs["llama-0-0"]
    code, lines, remarks = run(cluster, "logs", "llama")
    assert (code, lines, remarks) == (1, ["llama-0-1 | follows"], "llama-0-0: no log: not started\n")


def test_without_pods_the_way_to_look_further_is_told(cluster: FakeCluster) -> None:
    code, _, remarks = run(cluster, "logs", "llama", "--build")
    assert (code, remarks) == (1, "llmd: llama has no pods of build; see: llmd status llama\n")


def test_two_choices_are_a_wrong_command_line(cluster: FakeCluster) -> None:
    assert run(cluster, "logs", "llama", "--build", "--serve")[0] == 2


@given(st.lists(st.text("a\né", max_size=5), max_size=5), st.integers(1, 4))
def test_lines_are_whole_however_they_arrive(parts: list[str], size: int) -> None:
    text = "".join(parts)
    data = text.encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), size):
            yield data[start : start + size]

    async def collect() -> list[str]:
        return [line async for line in lines_of(chunks())]

    assert asyncio.run(collect()) == (text.removesuffix("\n").split("\n") if text else [])


# --- events -----------------------------------------------------------------------------------------------------------


def an_event(name: str, about: Json, reason: str, note: str, **more: Any) -> Json:
    meta = about["metadata"]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "prod"},
        "regarding": {"kind": about["kind"], "name": meta["name"], "uid": meta["uid"]},
        "type": "Normal",
        "reason": reason,
        "note": note,
        **more,
    }


def test_events_of_the_whole_family_come_oldest_first_and_of_nobody_else(cluster: FakeCluster) -> None:
    a_group_of_two(cluster)
    last = {"deprecatedLastTimestamp": "2026-01-02T14:06:00Z", "deprecatedCount": 7}
    cluster.put(
        an_event("3", a_server("llama-0", 1), "BackOff", "again\n", **last),
        an_event("1", a_served_model(), "Building", "starting", eventTime="2026-01-02T14:03:00.000001Z"),
        an_event("2", its_engine(), "Ready", "built", eventTime="2026-01-02T14:05:00.000001Z"),
        an_event("4", a_server("other-0"), "Other", "no", eventTime="2026-01-02T14:04:00.000001Z"),
        an_event("5", {"kind": "Pod", "metadata": {"name": "llama-0-0", "uid": "of an older pod"}}, "Other", "no"),
    )
    code, lines, _ = run(cluster, "events", "llama")
    assert code == 0
    assert [line.split()[1:] for line in lines] == [
        ["TYPE", "REASON", "ABOUT", "MESSAGE"],
        ["Normal", "Building", "llmdeployment/llama", "starting"],
        ["Normal", "Ready", "llmengine/llama-41be90c2d7f3", "built"],
        ["Normal", "BackOff", "pod/llama-0-1", "again", "(x7)"],
    ]


def test_where_nothing_was_told_the_way_to_look_further_is(cluster: FakeCluster) -> None:
    code, lines, _ = run(cluster, "events", "llama")
    assert code == 0
    assert "llmd status llama" in lines[0]
