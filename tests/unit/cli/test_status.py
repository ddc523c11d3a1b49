"""What a person sees of a deployment: the tree, the table, what is drawn anew, and what a pipe gets."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import merged
from trtllm_operator.cli import reference
from trtllm_operator.cli import status as command
from trtllm_operator.cli.cluster import UserClient, with_cluster
from trtllm_operator.cli.output import Screen
from trtllm_operator.cli.picture import Picture, look
from trtllm_operator.cli.portrait import portrait
from trtllm_operator.cli.status import Scope, keep_looking
from trtllm_operator.cli.tree import Branch, Span, aligned, draw, joined
from trtllm_operator.cluster import client as client_module

from .fake_cluster import FakeCluster, fake_cluster
from .harness import FakeTerminal, answer, llmd
from .running import (
    KEY,
    NEW,
    OLD,
    READY,
    SINCE,
    a_builder,
    a_condition,
    a_group,
    a_progress_line,
    a_served_model,
    a_server,
    its_engine,
)

Json = dict[str, Any]
NOW = datetime.fromisoformat(SINCE) + timedelta(minutes=3)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with fake_cluster(tmp_path, "prod") as found:
        yield found


def seen(cluster: FakeCluster, name: str = "llama") -> Picture:
    return with_cluster(str(cluster.kubeconfig), lambda client: look(client, "prod", name))


def tree(cluster: FakeCluster, stream: io.StringIO | None = None) -> list[str]:
    """As it looks three minutes after everything began."""
    return draw(Screen(stream or io.StringIO()), portrait(seen(cluster), NOW))


def in_the_middle(cluster: FakeCluster) -> None:
    """A rollout of two replicas: one is new and loads, one is old and serves."""
    waiting = a_condition("Ready", "False", "RollingOut", "1 of 2 replicas are ready; one by one, no GPUs are free")
    status = {"phase": "RollingOut", "conditions": [waiting], "currentRevision": OLD}
    cluster.put(a_served_model(status=status), its_engine())
    cluster.put(a_group(0, ready=0), a_server("llama-0", ready=False, node="gpu-b"))
    cluster.put(a_group(1, revision=OLD), a_server("llama-1"))
    cluster.logs["llama-0-0"] = "loading\n" + a_progress_line("weights", 68.4)


def test_the_tree_of_a_deployment_that_is_ready(cluster: FakeCluster) -> None:
    cluster.put(a_served_model(), its_engine())
    cluster.put(a_group(0), a_server("llama-0"), a_group(1), a_server("llama-1", node="gpu-b"))
    assert tree(cluster) == [
        f"llama  Ready  tp8 · 8 GPUs × 2 replicas  generation 1 → revision {NEW}",
        "├─ engine llama-41be90c2d7f3  ✓ ready  8 ranks · 71.2 GiB · built in 18m42s · key 41be90c2d7f3",
        f"├─ revision {NEW}  2/2 ready  serves",
        "│  ├─ llama-0  ✓ ready  node gpu-a  3m",
        "│  └─ llama-1  ✓ ready  node gpu-b  3m",
        "└─ url http://llama.prod.svc:8000/v1",
    ]


def test_a_rollout_shows_both_revisions_how_far_the_loading_is_and_what_blocks(cluster: FakeCluster) -> None:
    in_the_middle(cluster)
    assert tree(cluster)[1:-1] == [
        "├─ ◐ RollingOut  since 14:03Z  1 of 2 replicas are ready; one by one, no GPUs are free",
        "├─ engine llama-41be90c2d7f3  ✓ ready  8 ranks · 71.2 GiB · built in 18m42s · key 41be90c2d7f3",
        f"├─ revision {NEW}  0/2 ready",
        "│  └─ llama-0  ◐ loading engine ██████░░░░ 68%  node gpu-b  3m",
        f"├─ revision {OLD}  1 ready  serves",
        "│  └─ llama-1  ✓ ready  node gpu-a  3m",
    ]


def test_a_build_shows_each_rank(cluster: FakeCluster) -> None:
    reason = a_condition("Ready", "False", "BuildingEngine", "engine llama: rank 1 waits")
    engine = {"name": "llama-41be90c2d7f3", "key": KEY, "state": "Building", "percent": 41, "etaSeconds": 431}
    cluster.put(a_served_model(status={"phase": "Building", "conditions": [reason], "engine": engine}))
    cluster.put(its_engine(status={"phase": "Building", "step": "weights"}))
    cluster.put(a_builder(0), a_builder(1, node=None, phase="Pending"))
    cluster.logs["build-0"] = a_progress_line("weights", 82, "layer 19/30")
    assert tree(cluster)[2:5] == [
        "├─ engine llama-41be90c2d7f3  ◐ building ████░░░░░░ 41%  7m11s left  weights  key 41be90c2d7f3",
        "│  ├─ rank 0  ◐ weights ████████░░ 82%  layer 19/30  node gpu-a  3m",
        "│  └─ rank 1  ◐ pending                                          3m",
    ]


def test_a_long_part_is_not_filled_up_for_the_others(cluster: FakeCluster) -> None:
    rows = [
        [Span("a"), Span("x" * 41), Span("2 restarts"), Span("3m")],
        [Span("bc"), Span("ready"), Span(""), Span("4s")],
    ]
    assert ["".join(span.text for span in line) for line in aligned(rows)] == [
        f"a   {'x' * 41}  2 restarts  3m",
        "bc  ready  4s",
    ]


def test_a_line_is_broken_between_its_parts_where_that_does_not_waste_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen(FakeTerminal())
    apart = draw(screen, Branch(line=joined("a" * 20 + " word", "four restarts", "node gpu-b")))
    assert apart == ["a" * 20 + " word", "   four restarts  node gpu-b"]
    inside = draw(screen, Branch(line=joined("a", "one two three four five six seven eight nine ten")))
    assert inside == ["a  one two three four five six seven", "   eight nine ten"]
    dots = draw(screen, Branch(line=joined("8 ranks · 71.2 GiB · built in 18m42s · key 41be90c2d7f3")))
    assert dots == ["8 ranks · 71.2 GiB · built in 18m42s", "   · key 41be90c2d7f3"]


def test_what_began_days_ago_has_its_date(cluster: FakeCluster) -> None:
    in_the_middle(cluster)
    lines = draw(Screen(io.StringIO()), portrait(seen(cluster), NOW + timedelta(days=3)))
    assert lines[1].startswith("├─ ◐ RollingOut  since 2026-01-02 14:03Z  ")


def test_a_stalled_deployment_says_why_first_even_while_it_is_available(cluster: FakeCluster) -> None:
    message = "engine for revision 5 failed; revision 4 keeps serving"
    conditions = [
        a_condition("Ready", "False", "BuildFailed", message),
        a_condition("Stalled", "True", "BuildFailed", message),
    ]
    engine = {"name": "llama-41be90c2d7f3", "key": KEY, "state": "Failed"}
    cluster.put(a_served_model(status={"phase": "Degraded", "conditions": conditions, "engine": engine}), its_engine())
    lines = tree(cluster)
    assert lines[1] == f"├─ ✗ BuildFailed  since 14:03Z  {message}"
    assert lines[2] == "├─ engine llama-41be90c2d7f3  ✗ failed  key 41be90c2d7f3"


def test_the_pods_of_a_group_of_several_nodes_hang_below_it(cluster: FakeCluster) -> None:
    cluster.put(a_served_model(spec={"replicas": 1}), its_engine(), a_group(0, ready=1, pods=2))
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": '{"ok": false, "message": "no peer"}'}}
    crash = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended, "restartCount": 4}
    cluster.put(a_server("llama-0", 1, ready=False, node="gpu-b", **crash), a_server("llama-0", 0))
    assert tree(cluster)[3:6] == [
        "│  └─ llama-0  ◐ 1/2 pods  3m",
        "│     ├─ llama-0-0  ✓ ready  node gpu-a  3m",
        "│     └─ llama-0-1  ✗ CrashLoopBackOff, ended with code 1: no peer  4 restarts  node gpu-b  3m",
    ]


def test_a_pod_without_a_node_says_what_the_scheduler_says(cluster: FakeCluster) -> None:
    cluster.put(a_served_model(), its_engine(), a_group(0, ready=0))
    pod = a_server("llama-0", node=None, ready=False)
    stuck = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: no GPU."}
    pod["status"]["conditions"].append(stuck)
    cluster.put(pod)
    assert "│  └─ llama-0  ◐ no node: 0/3 nodes: no GPU  3m" in tree(cluster)


def test_what_was_chosen_and_what_is_refused_are_told(cluster: FakeCluster) -> None:
    chosen = {"field": "spec.maxBatchSize", "to": "64", "reason": "the largest that fits"}
    problem = {"path": "spec.dtype", "code": "enum", "message": "float8 is none", "hint": "use float16"}
    conditions = [a_condition("Stalled", "True", "InvalidSpec", "1 problem")]
    cluster.put(a_served_model(status={"conditions": conditions, "adjustments": [chosen], "problems": [problem]}))
    lines = tree(cluster)
    assert lines[2] == "│  └─ spec.dtype: float8 is none  use float16"
    assert lines[-3:-1] == ["├─ chosen for you", "│  └─ spec.maxBatchSize 64  the largest that fits"]


def test_an_object_that_no_operator_has_seen_points_to_the_doctor(cluster: FakeCluster) -> None:
    obj = a_served_model()
    del obj["status"]
    cluster.put(obj)
    assert "llmd doctor" in tree(cluster)[1]


def test_what_belongs_to_others_is_not_shown(cluster: FakeCluster) -> None:
    cluster.put(a_served_model(), its_engine(), a_group(0), a_group(0, owner="other"), a_server("other-0"))
    text = "\n".join(tree(cluster))
    assert "llama-0" in text
    assert "other-0" not in text


def test_without_the_right_to_read_logs_there_is_no_bar(cluster: FakeCluster) -> None:
    in_the_middle(cluster)
    cluster.refuse.add("log")
    assert "│  └─ llama-0  ◐ starting  node gpu-b  3m" in tree(cluster)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    in_the_middle(cluster)
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = [COLOUR.sub("", line) for line in tree(cluster, FakeTerminal())]
    assert max(map(len, lines)) <= columns
    words = " ".join(" ".join(lines).replace("│", " ").replace("├─", " ").split())
    assert "1 of 2 replicas are ready; one by one, no GPUs are free" in words
    if columns == 40:
        assert lines[2] == f"│  generation 1 → revision {NEW}"
    else:
        assert lines[0].endswith(f"generation 1 → revision {NEW}")
        assert len(lines[0]) == columns


def test_colours_are_for_terminals_that_want_them(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_middle(cluster)
    monkeypatch.setenv("COLUMNS", "200")
    assert "\x1b[32m✓ ready\x1b[0m" in "\n".join(tree(cluster, FakeTerminal()))
    assert "\x1b" not in "\n".join(tree(cluster))
    monkeypatch.setenv("NO_COLOR", "1")
    plain = tree(cluster, FakeTerminal())
    assert "\x1b" not in "\n".join(plain)
    assert [" ".join(line.split()) for line in plain] == tree_words(tree(cluster))


def tree_words(lines: list[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


def test_a_terminal_without_unicode_gets_ascii_of_the_same_width(cluster: FakeCluster) -> None:
    in_the_middle(cluster)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    lines = draw(Screen(stream), portrait(seen(cluster), NOW))
    stream.write("\n".join(lines))
    assert [len(line) for line in lines] == [len(line) for line in tree(cluster)]
    assert "|  `- llama-0  * loading engine ######.... 68%  node gpu-b  3m" in lines


def test_the_command_prints_the_tree_of_the_contexts_namespace(cluster: FakeCluster) -> None:
    in_the_middle(cluster)
    result = llmd("status", "llama", "--kubeconfig", cluster.kubeconfig)
    assert result.exit_code == 0
    assert result.stdout.startswith("llama  RollingOut  tp8 · 8 GPUs × 2 replicas")
    assert cluster.writes() == []


def test_a_name_that_is_not_there_is_told_with_those_that_are(cluster: FakeCluster) -> None:
    cluster.put(a_served_model("chat"), a_served_model("code"))
    result = llmd("status", "chta", "--kubeconfig", cluster.kubeconfig)
    assert result.exit_code == 1
    assert result.stderr == "llmd: no LLMDeployment chta in namespace prod: there are chat, code\n"


def test_a_user_who_may_not_look_is_told_so(cluster: FakeCluster) -> None:
    cluster.refuse.add("llmdeployments")
    result = llmd("status", "--kubeconfig", cluster.kubeconfig)
    assert result.exit_code == 1
    assert result.stderr.startswith("llmd: the cluster does not let you: ")


def test_the_table_has_the_columns_of_kubectl(cluster: FakeCluster) -> None:
    cluster.put(a_served_model("chat"), a_served_model("code", status={"display": {"engine": "41%, 7m left"}}))
    lines = llmd("status", "--kubeconfig", cluster.kubeconfig).stdout.splitlines()
    assert lines[0].split() == ["NAME", "READY", "PHASE", "ENGINE", "MODEL", "PARALLEL", "REASON", "AGE"]
    assert lines[2].split("   ")[3] == "41%, 7m left"


def test_the_table_of_all_namespaces_names_them(cluster: FakeCluster) -> None:
    elsewhere = merged(a_served_model("code"), {"metadata": {"namespace": "test"}})
    cluster.put(a_served_model("chat"), elsewhere)
    lines = llmd("status", "-A", "--kubeconfig", cluster.kubeconfig).stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["prod", "chat"], ["test", "code"]]
    assert len(llmd("status", "--kubeconfig", cluster.kubeconfig).stdout.splitlines()) == 2


def test_a_name_in_all_namespaces_is_a_wrong_command_line(cluster: FakeCluster) -> None:
    assert llmd("status", "llama", "-A", "--kubeconfig", cluster.kubeconfig).exit_code == 2


@pytest.mark.parametrize(("columns", "kept"), [(80, "NAME READY PHASE ENGINE REASON AGE"), (200, "REVISION")])
def test_the_table_keeps_to_the_width_and_gives_up_what_matters_least(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, columns: int, kept: str
) -> None:
    cluster.put(a_served_model("a-rather-long-name"))
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = Screen(FakeTerminal())
    scope = Scope(namespace="prod")
    seen = with_cluster(str(cluster.kubeconfig), lambda client: command.see(client, scope, screen))
    lines = [COLOUR.sub("", line) for line in seen.lines]
    assert max(map(len, lines)) <= columns
    assert set(kept.split()) <= set(lines[0].split())
    assert ("MODEL" in lines[0]) == (columns == 200)


class Enough(Exception):
    """Ends what would go on for ever."""


def watched(cluster: FakeCluster, stream: io.StringIO, *changes: Any) -> str:
    """What is written while, between two looks, one change after another happens."""
    left = list(changes)

    async def pause() -> None:
        if not left:
            raise Enough
        left.pop(0)()

    async def work(client: UserClient) -> None:
        await keep_looking(client, Scope(namespace="prod", name="llama"), stream, pause)

    with pytest.raises(Enough):
        with_cluster(str(cluster.kubeconfig), work)
    return stream.getvalue()


def test_a_pipe_gets_one_line_for_each_change(cluster: FakeCluster) -> None:
    in_the_middle(cluster)

    def finish() -> None:
        cluster.put(a_served_model(status={"conditions": [READY]}))

    lines = watched(cluster, io.StringIO(), lambda: None, finish, lambda: None).splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == [
        "llama  RollingOut  2/2  engine 41be90c2d7f3  "
        "RollingOut: 1 of 2 replicas are ready; one by one, no GPUs are free",
        "llama  Ready  2/2  engine 41be90c2d7f3",
    ]


def test_a_terminal_is_drawn_anew_in_place(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_middle(cluster)
    monkeypatch.setenv("LINES", "50")
    monkeypatch.setenv("COLUMNS", "200")
    text = watched(cluster, FakeTerminal(), lambda: None)
    first, second = text.split("\x1b[H")[1:]
    assert first == second
    assert first.count("\x1b[K") == len(tree(cluster))
    assert first.endswith("\n\x1b[J")


def test_a_line_that_fills_the_terminal_keeps_its_last_letter() -> None:
    """After the last column the cursor stays on it: to clear from there to the end would clear the letter."""
    assert command.frame(["x" * 80], Screen(FakeTerminal())) == "\x1b[H\x1b[K" + "x" * 80 + "\n\x1b[J"


def test_what_is_taller_than_the_terminal_is_counted(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_middle(cluster)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINES", "5")
    text = watched(cluster, FakeTerminal())
    assert text.count("\n") == 4
    assert "... 5 lines more" in text


def test_a_watch_outlives_an_api_server_that_does_not_answer(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "BACKOFF", ())
    in_the_middle(cluster)
    monkeypatch.setenv("COLUMNS", "200")
    text = watched(cluster, FakeTerminal(), lambda: cluster.refuse.add("statefulsets"), lambda: cluster.refuse.clear())
    frames = text.split("\x1b[H")[1:]
    assert ["not up to date" in frame for frame in frames] == [False, True, False]
    assert all("llama-1" in frame for frame in frames)


# --- for machines -----------------------------------------------------------------------------------------------------


def test_machines_get_what_is_there_and_how_far_it_is(cluster: FakeCluster) -> None:
    in_the_middle(cluster)
    result = llmd("status", "llama", "-o", "json", "--kubeconfig", cluster.kubeconfig)
    told = answer(result)
    assert result.exit_code == 0
    assert (told["ready"], told["phase"], told["revisions"]) == (
        False,
        "RollingOut",
        {"current": OLD, "target": NEW, "failed": None},
    )
    assert told["blocked"] == {
        "reason": "RollingOut",
        "message": "1 of 2 replicas are ready; one by one, no GPUs are free",
        "since": SINCE,
        "needsPerson": False,
    }
    new, old = told["groups"]
    assert (new["revision"], new["ready"], old["revision"], old["ready"]) == (NEW, False, OLD, True)
    assert new["pods"] == [
        {
            "name": "llama-0-0",
            "rank": 0,
            "state": "loading",
            "text": "loading engine",
            "percent": 68.4,
            "detail": None,
            "node": "gpu-b",
            "restarts": 0,
            "created": SINCE,
        }
    ]
    assert [pod["state"] for pod in old["pods"]] == ["ready"]


def test_machines_get_the_same_names_of_all_and_in_both_formats(cluster: FakeCluster) -> None:
    in_the_middle(cluster)
    arguments = ("status", "--kubeconfig", cluster.kubeconfig, "-o")
    listed = answer(llmd(*arguments, "json"))
    assert yaml.safe_load(llmd(*arguments, "yaml").stdout) == listed
    (brief,) = listed["deployments"]
    one = answer(llmd(*arguments, "json", "llama"))
    assert {**brief, "groups": one["groups"], "fetching": [], "building": []} == one


def test_machines_are_told_nulls_of_what_nobody_has_looked_at(cluster: FakeCluster) -> None:
    obj = a_served_model()
    del obj["status"]
    cluster.put(obj)
    told = answer(llmd("status", "llama", "-o", "json", "--kubeconfig", cluster.kubeconfig))
    assert (told["ready"], told["phase"], told["blocked"], told["engine"]) == (False, "Pending", None, None)
    assert told["replicas"] == {"wanted": 2, "existing": None, "ready": None, "updated": None}


def test_a_status_of_an_older_generation_is_not_ready(cluster: FakeCluster) -> None:
    cluster.put(merged(a_served_model(), {"metadata": {"generation": 2}}))
    assert not answer(llmd("status", "llama", "-o", "json", "--kubeconfig", cluster.kubeconfig))["ready"]


def test_every_field_that_machines_get_is_on_the_page(cluster: FakeCluster) -> None:
    in_the_middle(cluster)
    told = answer(llmd("status", "llama", "-o", "json", "--kubeconfig", cluster.kubeconfig))
    page = reference.page()
    inner = [key for section in ("blocked", "replicas", "revisions", "engine") for key in told[section]]
    group = told["groups"][0]
    assert [f for f in (*told, *inner, *group, *group["pods"][0]) if f"`{f}`" not in page] == []


def test_a_watch_has_no_answer_for_machines(cluster: FakeCluster) -> None:
    assert llmd("status", "-w", "-o", "json", "--kubeconfig", cluster.kubeconfig).exit_code == 2
