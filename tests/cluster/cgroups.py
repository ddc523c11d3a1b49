"""One control group per node: it limits the pods, and it finds every process of the cluster, also after a crash.

The daemons live in `<group>/daemons` and their children inherit it (the containers' shims), the pods in
`<group>/kubepods`, which the kubelet makes. Killing the group kills all of them and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.cluster.errors import HarnessError
from tests.cluster.waiting import wait_until

ROOT = Path("/sys/fs/cgroup")
NEEDED = ("cpu", "memory", "pids")


def unified() -> bool:
    """Whether the machine has control groups v2 only (else v1, maybe beside v2)."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """The mounted hierarchies that a container runtime uses."""
    if unified():
        return [ROOT]
    # cpu and cpuacct may be one mount with two names.
    return sorted({path.resolve() for path in ROOT.iterdir() if path.is_dir() and (path / "cgroup.procs").exists()})


def missing_controllers() -> list[str]:
    """Those of `NEEDED` that the machine does not offer."""
    if unified():
        offered = set((ROOT / "cgroup.controllers").read_text().split())
    else:
        offered = {path.name for path in ROOT.iterdir()} if ROOT.is_dir() else set()
    return [name for name in NEEDED if name not in offered]


@dataclass(frozen=True)
class ControlGroup:
    """A group of this name right below the root of every hierarchy."""

    name: str

    @property
    def daemons(self) -> Path:
        """The one folder that daemons are put into: membership in one hierarchy is enough to find them."""
        return (ROOT if unified() else ROOT / "pids") / self.name / "daemons"

    def create(self) -> None:
        """Make the group everywhere; on v2 pass all controllers down."""
        for folder in self._folders():
            folder.mkdir(exist_ok=True)
        if unified():
            for folder in (ROOT, ROOT / self.name):
                controllers = (folder / "cgroup.controllers").read_text().split()
                (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
        self.daemons.mkdir(exist_ok=True)

    def processes(self, below: str = "") -> set[int]:
        """The PIDs in the group, or in one branch of it."""
        pids: set[int] = set()
        for folder in self._folders():
            for file in (folder / below).rglob("cgroup.procs"):
                with contextlib.suppress(OSError):
                    pids.update(int(line) for line in file.read_text().split())
        return pids

    def kill(self, below: str = "") -> None:
        """Kill all processes of the group, or of one branch of it, and wait until none is left."""

        def empty() -> bool:
            pids = self.processes(below)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            return not pids

        wait_until(empty, f"the processes of control group {self.name} to die", 20)

    def remove(self) -> None:
        """Remove the (empty) group from every hierarchy."""
        for folder in self._folders():
            for branch in [*_deepest_first(folder), folder] if folder.exists() else []:
                try:
                    wait_until(partial(_removed, branch), f"control group {branch} to empty", 5)
                except HarnessError as error:
                    raise HarnessError(f"{error}; it still holds {self.processes()}") from None

    def exists(self) -> bool:
        """Whether any hierarchy has the group."""
        return any(folder.exists() for folder in self._folders())

    def _folders(self) -> Iterator[Path]:
        return (hierarchy / self.name for hierarchy in hierarchies())


def _deepest_first(folder: Path) -> list[Path]:
    branches = [path for path in folder.rglob("*") if path.is_dir()]
    return sorted(branches, key=lambda path: len(path.parts), reverse=True)


def _removed(branch: Path) -> bool:
    try:
        branch.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # a dying process is still in it
        return False
    return True
