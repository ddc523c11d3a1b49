"""A chat goes through kubectl's port-forward, keeps what was said, and shows an answer as it is made."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trtllm_operator.cli.chat import pieces
from trtllm_operator.cli.failure import BadInput

from .fake_cluster import FakeCluster, fake_cluster
from .harness import llmd, written
from .running import a_served_model

Json = dict[str, Any]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Its port is also the server's, and a double of kubectl says that it is forwarded, until it is ended."""
    with fake_cluster(tmp_path, "prod") as found:
        found.put(a_served_model())
        found.texts["/v1/models"] = json.dumps({"data": [{"id": "smol"}]})
        found.texts["/v1/chat/completions"] = stream("Pa", "ris", None)
        a_kubectl(tmp_path, f'echo "Forwarding from 127.0.0.1:{found.port} -> 8000"\nexec tail -f /dev/null')
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
        yield found


def a_kubectl(folder: Path, rest: str) -> None:
    """Writes down how it was called, then does `rest`."""
    (folder / "bin").mkdir(exist_ok=True)
    script = f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/called\n{rest}\n'
    written(folder / "bin" / "kubectl", script).chmod(0o755)


def stream(*texts: str | None) -> str:
    events = [{"choices": [{"delta": {} if text is None else {"content": text}}]} for text in texts]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\ndata: never\n\n"


def test_each_turn_carries_what_was_said_before(cluster: FakeCluster, tmp_path: Path) -> None:
    result = llmd(
        "chat", "llama", "--system", "be short", "--kubeconfig", cluster.kubeconfig, stdin="capital?\n\nsure?\n"
    )
    assert (result.exit_code, result.stdout) == (0, "Paris\nParis\n")
    first, second = [request.body for request in cluster.requests if request.path == "/v1/chat/completions"]
    assert (first["model"], first["stream"]) == ("smol", True)
    assert [(m["role"], m["content"]) for m in second["messages"]] == [
        ("system", "be short"),
        ("user", "capital?"),
        ("assistant", "Paris"),
        ("user", "sure?"),
    ]
    assert (tmp_path / "called").read_text().split() == [
        *("--kubeconfig", str(cluster.kubeconfig), "--namespace", "prod"),
        *("port-forward", "--address", "127.0.0.1", "service/llama", ":8000"),
    ]


def test_what_kubectl_says_when_it_cannot_is_passed_on(cluster: FakeCluster, tmp_path: Path) -> None:
    a_kubectl(tmp_path, "echo 'pods is forbidden' >&2; exit 1")
    result = llmd("chat", "llama", "--kubeconfig", cluster.kubeconfig, stdin="hello\n")
    assert (result.exit_code, result.stderr) == (1, "llmd: kubectl port-forward: pods is forbidden\n")


def test_a_server_that_refuses_is_quoted(cluster: FakeCluster) -> None:
    del cluster.texts["/v1/chat/completions"]
    result = llmd("chat", "llama", "--kubeconfig", cluster.kubeconfig, stdin="hello\n")
    assert result.exit_code == 1
    assert result.stderr.startswith("llmd: the server answers 404: ")


def test_without_a_ready_replica_nothing_is_forwarded(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.put(a_served_model(status={"readyReplicas": 0}))
    result = llmd("chat", "llama", "--kubeconfig", cluster.kubeconfig, stdin="hello\n")
    assert (result.exit_code, result.stderr) == (1, "llmd: no replica of llama is ready; see: llmd status llama\n")
    assert not (tmp_path / "called").exists()


def test_an_error_in_the_middle_of_an_answer_is_one() -> None:
    lines = iter([b'data: {"choices": [{"delta": {"content": "a"}}]}\n', b'data: {"error": {"message": "drained"}}\n'])
    said = pieces(lines)
    assert next(said) == "a"
    with pytest.raises(BadInput, match="drained"):
        next(said)
