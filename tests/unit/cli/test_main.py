"""The command line itself: quick to start, told in its help and its page, wrong calls end with 2."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import trtllm_operator
from trtllm_operator.cli import reference
from trtllm_operator.cli.main import app

from .harness import llmd, manifest

ROOT: Final = Path(__file__).parents[3]
OFFLINE: Final = ("validate", "import", "export", "render", "plan")
AT_A_CLUSTER: Final = ("status", "retry", "refresh", "pause", "resume", "rollback", "logs", "events", "chat", "doctor")
COMMANDS: Final = (*OFFLINE, *AT_A_CLUSTER, "completion")


def modules_after(*arguments: str) -> set[str]:
    """The packages that a run of `llmd` in a process of its own has loaded."""
    script = (
        "import sys\n"
        "from trtllm_operator.cli.main import app\n"
        f"app({list(arguments)!r}, standalone_mode=False)\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(ended.stderr.splitlines()[-1].split())


def test_help_loads_nothing_that_takes_long() -> None:
    loaded = modules_after("--help")
    assert "typer" in loaded
    assert not loaded & {"pydantic", "kubernetes", "aiohttp", "kopf", "yaml", "rich", "torch", "transformers"}


def test_validation_never_loads_a_framework_or_a_client(tmp_path: Path) -> None:
    loaded = modules_after("validate", str(manifest(tmp_path)))
    assert "pydantic" in loaded
    assert not loaded & {"torch", "transformers", "numpy", "kubernetes", "aiohttp", "kopf"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = llmd(command, "--help")
    assert result.exit_code == 0
    assert f"llmd {command}" in reference.page()


def test_the_commands_are_those_that_the_help_lists() -> None:
    listed = llmd("--help").stdout.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed[: len(COMMANDS)]] == list(COMMANDS)


def test_the_version_is_the_packages() -> None:
    assert llmd("--version").stdout == f"llmd {trtllm_operator.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("validate",), ("nothing",), ("validate", "x", "-o", "xml")])
def test_a_wrong_command_line_is_exit_code_two(arguments: tuple[str, ...]) -> None:
    assert llmd(*arguments).exit_code == 2


def test_the_page_about_the_command_line_is_up_to_date() -> None:
    page = ROOT / "docs" / "reference" / reference.FILE
    assert page.read_text() == reference.page(), "run: python -m trtllm_operator.cli.reference docs/reference"


def test_the_application_is_the_entry_point() -> None:
    assert app.info.name == "llmd"
