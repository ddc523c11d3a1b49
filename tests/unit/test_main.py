"""The command line: flags, environment, and what is said when they are wrong."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from trtllm_operator.main import JsonLines, Options, parse, run


@pytest.fixture(autouse=True)
def an_empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WATCH_NAMESPACES", "POD_NAMESPACE", "LOG_LEVEL", "LOG_FORMAT", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)


def test_without_anything_all_namespaces_are_served() -> None:
    assert parse([]) == Options()


def test_namespaces_can_be_named_by_flag_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCH_NAMESPACES", "prod, staging,,prod")
    assert parse([]).namespaces == ("prod", "staging")
    assert parse(["--namespace", "dev", "--namespace", "test"]).namespaces == ("dev", "test")


def test_the_lease_lives_in_the_pods_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "operators")
    assert parse([]).lease_namespace == "operators"
    assert parse(["--lease-namespace", "other"]).lease_namespace == "other"


def test_no_worker_is_no_operator(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--workers", "0"])
    assert "--workers: 0: at least 1" in capsys.readouterr().err


def test_a_wrong_configuration_file_ends_the_process_and_names_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("engineImag: registry/engine:1\n")
    assert run(["--config", str(config)]) == 2
    assert "engineImag" in capsys.readouterr().err


def test_a_missing_configuration_file_ends_the_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(tmp_path / "none.yaml")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_without_a_way_to_the_cluster_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run(["--kubeconfig", str(tmp_path / "none")]) == 2
    assert "set --kubeconfig" in capsys.readouterr().err


def test_a_json_line_holds_level_message_and_trace() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "%s failed", ("key",), (ValueError, error, None))
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["message"]) == ("ERROR", "key failed")
    assert "ValueError: broken" in line["error"]
