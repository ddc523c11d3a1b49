"""A component is stopped and started again, and nothing else is ever killed."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.errors import HarnessError
from tests.cluster.processes import Identity, Processes, Record
from tests.cluster.waiting import wait_until


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path / "processes", tmp_path / "logs")


def record_of(processes: Processes, name: str) -> Record:
    record = processes.record(name)
    assert record is not None
    return record


def test_a_recycled_pid_is_another_process_and_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        now = Identity.of(bystander.pid)
        assert now is not None
        before = replace(now, started=now.started - 1)

        assert now.alive()
        assert not before.alive()
        before.signal(signal.SIGKILL)
        assert bystander.poll() is None

        now.signal(signal.SIGKILL)
        assert bystander.wait(10) == -signal.SIGKILL


def test_the_same_pid_after_a_reboot_is_another_process() -> None:
    me = Identity.of(os.getpid())
    assert me is not None
    assert not replace(me, boot="another boot").alive()


def test_a_component_starts_again_with_its_arguments_and_environment(processes: Processes) -> None:
    processes.start("echo", ["sh", "-c", 'echo "$GREETING"; exec sleep 60'], {"GREETING": "hello"})
    first = record_of(processes, "echo").identity
    wait_until(lambda: "hello" in processes.log("echo").read_text(), "the first greeting", 10)

    processes.stop("echo")
    assert not first.alive()
    processes.start_again("echo")

    second = record_of(processes, "echo").identity
    assert second.alive()
    assert second != first
    wait_until(lambda: processes.log("echo").read_text() == "hello\nhello\n", "the second greeting", 10)
    processes.stop("echo")


def test_starting_a_running_component_changes_nothing(processes: Processes) -> None:
    processes.start("nap", ["sleep", "60"])
    first = record_of(processes, "nap").identity
    processes.start("nap", ["sleep", "61"])
    assert record_of(processes, "nap").identity == first
    processes.stop("nap")


def test_a_component_that_ignores_the_signal_is_killed(processes: Processes) -> None:
    processes.start("deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    wait_until(lambda: "ready" in processes.log("deaf").read_text(), "the trap to be set", 10)
    processes.stop("deaf", seconds=0.2)
    assert not processes.alive("deaf")


def test_a_dead_component_is_reported_with_the_end_of_its_log(processes: Processes) -> None:
    # On a busy machine it may have ended before its start returns, which then says the same.
    with pytest.raises(HarnessError, match=r"broken ended unexpectedly.*\n  no such flag"):
        processes.start("broken", ["sh", "-c", "echo no such flag; exit 1"])
        wait_until(lambda: not processes.alive("broken"), "it to end", 10)
        processes.require_alive("broken")


def test_waiting_in_vain_names_what_was_waited_for() -> None:
    with pytest.raises(HarnessError, match="waited 0 s for the moon, in vain"):
        wait_until(lambda: None, "the moon", seconds=0)
