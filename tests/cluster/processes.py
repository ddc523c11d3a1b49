"""Long-running programs that outlive the command that started them, and are never mistaken for others.

A process is known by its PID together with its start time and the machine's boot: a recycled PID is another process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.errors import HarnessError
from tests.cluster.waiting import wait_until

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Identity:
    """One process for all time: its PID, its start in clock ticks after boot, and the boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The process that has this PID now; None if there is none, or only its zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The second field is the program's name in parentheses, and may itself hold blanks and parentheses.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]), BOOT_ID.read_text().strip())

    def alive(self) -> bool:
        """Whether exactly this process still runs. Reaps it if it is a dead child of ours."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return Identity.of(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to exactly this process; nothing happens if it is gone."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass(frozen=True)
class Record:
    """What is needed to recognise, stop and start again one component."""

    identity: Identity
    argv: list[str]
    environment: dict[str, str]

    @classmethod
    def read(cls, file: Path) -> Record | None:
        """The record in a file; None where there is none."""
        try:
            raw = json.loads(file.read_text())
        except FileNotFoundError:
            return None
        return cls(Identity(**raw["identity"]), raw["argv"], raw["environment"])


class Processes:
    """The components of one cluster, each with a record in `folder` and a log in `logs`."""

    def __init__(self, folder: Path, logs: Path, wrapper: Sequence[str] = ()) -> None:
        """`wrapper` is put before each command: it must end by executing the rest, keeping the PID."""
        self._folder = folder
        self._logs = logs
        self._wrapper = list(wrapper)

    def names(self) -> list[str]:
        """All components that were ever started, oldest first."""
        records = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        return [file.stem for file in records]

    def record(self, name: str) -> Record | None:
        """The last start of a component."""
        return Record.read(self._folder / f"{name}.json")

    def log(self, name: str) -> Path:
        """Standard output and error of a component, all its starts one after another."""
        return self._logs / f"{name}.log"

    def alive(self, name: str) -> bool:
        """Whether the last start of a component still runs."""
        record = self.record(name)
        return record is not None and record.identity.alive()

    def start(self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start a component in a session of its own, unless it runs already."""
        if self.alive(name):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        extra = dict(environment or {})
        command = [*self._wrapper, *argv]
        with self.log(name).open("ab") as log, open(os.devnull, "rb") as nothing:
            pid = os.posix_spawnp(
                command[0],
                command,
                {**os.environ, **extra},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                ],
                setsid=True,
            )
        identity = Identity.of(pid)
        if identity is None:
            raise HarnessError(self.epitaph(name))
        record = Record(identity, list(argv), extra)
        file = self._folder / f"{name}.json"
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(asdict(record), indent=1))
        draft.rename(file)

    def start_again(self, name: str) -> None:
        """Start a component as it was started before."""
        record = self.record(name)
        if record is None:
            raise HarnessError(f"component {name!r} was never started; known are: {', '.join(self.names()) or 'none'}")
        self.start(name, record.argv, record.environment)

    def stop(self, name: str, seconds: float = 10, number: signal.Signals = signal.SIGTERM) -> None:
        """Signal a component and wait for its end; after `seconds` it is killed. Its record stays for `start_again`."""
        record = self.record(name)
        if record is None:
            return
        record.identity.signal(number)
        try:
            wait_until(lambda: not record.identity.alive(), f"{name} to end", seconds, 0.02)
        except HarnessError:
            record.identity.signal(signal.SIGKILL)
            wait_until(lambda: not record.identity.alive(), f"{name} to be killed", 10, 0.02)

    def require_alive(self, name: str) -> None:
        """Raises `HarnessError` with the end of the log if a component has died."""
        if not self.alive(name):
            raise HarnessError(self.epitaph(name))

    def epitaph(self, name: str) -> str:
        """Why a component died, as far as its log tells."""
        log = self.log(name)
        last = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        return "\n  ".join([f"{name} ended unexpectedly; the end of {log}:", *last])
