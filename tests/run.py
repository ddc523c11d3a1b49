"""Run the test tiers: `python -m tests.run [TIER...]`, each in a process and a time of its own.

Lanes run side by side, because what needs a cluster mostly waits (for kubelets, leases, pods) while the unit tests
compute. A single lane's output goes through as it comes; of several, each tier's comes whole when it ends.

A tier that this machine cannot run is named with the reason. With `REQUIRE_ALL=1`, as in CI, a tier left out
and a test skipped are failures: nothing green may hide what was not looked at.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tests.cluster import argocd, prerequisites
from tests.cluster.errors import HarnessError
from tests.cluster.prerequisites import Tier

ROOT: Final = Path(__file__).parent.parent
REPORTS: Final = ROOT / "build" / "tests"

NODE_HARNESS: Final = "tests/cluster/test_node.py"
"""Lies with the harness that it tests, and needs what the node tier needs."""

NOTHING_COLLECTED: Final = 5
"""pytest's exit status when no test was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A group of tests that need the same things from a machine."""

    name: str
    arguments: tuple[str, ...]
    """What pytest runs: folders, and a marker expression."""
    limit: float
    """Seconds after which the tier is stopped and has failed: a hang must not use up the whole of a CI run."""
    obstacle: Callable[[], str | None] = lambda: None
    """Why this machine cannot run it, if so."""
    lane: str = "computing"
    """Tiers of one lane run one after another."""


def no_control_plane() -> str | None:
    """The programs are built from Go modules; of the system, next to nothing is needed."""
    return _missing(prerequisites.COMMANDS[Tier.APISERVER])


def no_argo_cd() -> str | None:
    """Argo CD's programs are built like the control plane's; its cache and git come from the system."""
    return _missing(prerequisites.COMMANDS[Tier.APISERVER] | argocd.COMMANDS)


def no_node() -> str | None:
    """A node needs root, control groups and some Debian packages."""
    if lacks := prerequisites.obstacles():
        return "; ".join(lacks)
    return _missing(prerequisites.COMMANDS[Tier.NODE] | prerequisites.IMAGE_COMMANDS)


def _missing(commands: dict[str, str]) -> str | None:
    """What cannot be installed either, if anything."""
    try:
        prerequisites.ensure(commands)
    except HarnessError as error:
        return str(error).splitlines()[0]
    return None


TIERS: Final = {
    tier.name: tier
    for tier in (
        Suite(name="unit", arguments=("tests/unit",), limit=2700),
        Suite(name="golden", arguments=("tests/golden",), limit=300),
        Suite(name="gitops", arguments=("tests/gitops",), limit=3600, obstacle=no_argo_cd, lane="control plane"),
        Suite(
            name="apiserver",
            arguments=("tests/apiserver", "tests/cluster", f"--ignore={NODE_HARNESS}"),
            limit=2700,
            obstacle=no_control_plane,
            lane="control plane",
        ),
        Suite(name="kwok", arguments=("tests/kwok",), limit=2400, obstacle=no_control_plane, lane="control plane"),
        Suite(name="node", arguments=("tests/node", NODE_HARNESS), limit=4200, obstacle=no_node, lane="node"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a tier ended, as one line says it."""

    tier: str
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    trouble: str = ""
    """Why the tier did not run, or did not end by itself."""
    left_out: bool = False

    def is_good(self, require_all: bool) -> bool:
        """Whether the run as a whole may still be green."""
        if self.left_out or self.skipped:
            return not require_all and not self.failed and (self.left_out or not self.trouble)
        return not self.failed and not self.trouble

    def __str__(self) -> str:
        if self.left_out:
            return f"tier {self.tier}: left out: {self.trouble}"
        counts = [f"{self.passed} passed"]
        counts += [f"{self.failed} failed"] * bool(self.failed) + [f"{self.skipped} skipped"] * bool(self.skipped)
        return f"tier {self.tier}: {', '.join(counts)} in {self.seconds:.0f}s" + (
            f": {self.trouble}" * bool(self.trouble)
        )


def run(tier: Suite, output: IO[bytes] | None = None) -> Outcome:
    """Run one tier; its output goes to `output`, else through to the terminal."""
    if (reason := tier.obstacle()) is not None:
        return Outcome(tier=tier.name, trouble=reason, left_out=True)
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / f"{tier.name}.xml"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "--durations=5", *tier.arguments],
        cwd=ROOT,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
    )
    trouble = ""
    try:
        status = process.wait(tier.limit)
        if status == NOTHING_COLLECTED:
            trouble = "no test was found"
        elif status not in (0, 1):
            trouble = f"pytest ended with status {status}"
    except subprocess.TimeoutExpired:
        trouble = f"stopped at its limit of {tier.limit:.0f}s"
        stop(process)
    return read(tier.name, report, time.monotonic() - began, trouble)


def run_all(tiers: Sequence[Suite]) -> list[Outcome]:
    """Run tiers, lanes side by side; outcomes come in the order asked for."""
    lanes: dict[str, list[Suite]] = {}
    for tier in tiers:
        lanes.setdefault(tier.lane, []).append(tier)
    if len(lanes) <= 1:
        return [outcome for lane in lanes.values() for outcome in run_lane(lane)]
    terminal = threading.Lock()
    with ThreadPoolExecutor(len(lanes)) as pool:
        by_lane = pool.map(lambda lane: run_lane(lane, terminal), lanes.values())
    by_name = {outcome.tier: outcome for outcomes in by_lane for outcome in outcomes}
    return [by_name[tier.name] for tier in tiers]


def run_lane(tiers: Sequence[Suite], terminal: threading.Lock | None = None) -> list[Outcome]:
    """Run tiers one after another; with others beside them, the terminal is only taken to show a whole tier."""
    outcomes = []
    for tier in tiers:
        if terminal is None:
            print(f"--- tier {tier.name}", flush=True)
            outcomes.append(run(tier))
            continue
        with tempfile.TemporaryFile() as output:
            print(f"--- tier {tier.name} runs beside another; its output follows when it ends", flush=True)
            outcomes.append(run(tier, output))
            output.seek(0)
            with terminal:
                print(f"--- tier {tier.name}", output.read().decode(errors="replace"), sep="\n", flush=True)
    return outcomes


def read(tier: str, report: Path, seconds: float, trouble: str) -> Outcome:
    """Count from pytest's JUnit report; a run that was stopped has none."""
    if not report.exists():
        return Outcome(tier=tier, seconds=seconds, trouble=trouble or "pytest wrote no report")
    suites = xml.parse(report).getroot().iter("testsuite")
    total, failed, skipped = 0, 0, 0
    for suite in suites:
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    passed = total - failed - skipped
    return Outcome(tier=tier, seconds=seconds, passed=passed, failed=failed, skipped=skipped, trouble=trouble)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask first: fixtures that started a cluster take it down on an interrupt."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(names: Sequence[str]) -> int:
    """Exit status 0: everything asked for ran (or may be left out) and passed."""
    if unknown := sorted(set(names) - set(TIERS)):
        print(f"error: no tier {unknown[0]!r}; tiers are {', '.join(TIERS)}", file=sys.stderr)
        return 2
    require_all = os.environ.get("REQUIRE_ALL", "") not in ("", "0")
    outcomes = run_all([TIERS[name] for name in names or TIERS])
    print()
    for outcome in outcomes:
        print(outcome)
    bad = [outcome.tier for outcome in outcomes if not outcome.is_good(require_all)]
    if bad:
        print(f"failed: {', '.join(bad)}" + " (REQUIRE_ALL: nothing may be left out or skipped)" * require_all)
    return 1 if bad else 0


if __name__ == "__main__":
    # A shell that starts us in the background has SIGINT ignored, and pytest would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
