"""A shell asks, and is answered: the real scripts, run by the shells that are there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from .harness import llmd

BIN: Final = Path(sys.executable).parent


def run(*command: str, **environment: str) -> list[str]:
    """The words that it prints, with our program in PATH."""
    path = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(
        command, env={**os.environ, **path, **environment}, capture_output=True, text=True, check=True
    )
    return ended.stdout.split()


def test_bash_completes_commands_and_options() -> None:
    script = llmd("completion", "bash").stdout
    typed = 'COMP_WORDS=({}); COMP_CWORD={}; _llmd_completion llmd; echo "${{COMPREPLY[@]}}"'
    assert run("bash", "-c", script + typed.format("llmd re", 1)) == ["render", "retry", "refresh", "resume"]
    assert run("bash", "-c", script + typed.format("llmd status --wa", 2)) == ["--watch"]


def test_kubectl_completes_its_plugin(tmp_path: Path) -> None:
    program = tmp_path / "kubectl_complete-llmd"
    program.write_text(llmd("completion", "kubectl").stdout)
    program.chmod(0o755)
    assert run(str(program), "roll") == ["rollback", ":4"]
    assert run(str(program), "completion", "") == ["bash", "zsh", "fish", "kubectl", ":4"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_are_ones_that_they_can_read(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(llmd("completion", shell).stdout)
    assert "_LLMD_COMPLETE=complete_" + shell in script.read_text()
    if shutil.which(shell) is not None:
        run(shell, "-n", str(script))


def test_another_shell_is_told_those_that_there_are() -> None:
    result = llmd("completion", "nu")
    assert result.exit_code == 2
    assert "'bash', 'zsh', 'fish', 'kubectl'" in result.stderr
