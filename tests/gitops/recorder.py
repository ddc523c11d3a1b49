"""Keeps every version of the objects of one kind that the API server tells a watch, so that no moment is missed."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from tests.cluster.binaries import binary
from tests.cluster.cluster import Cluster

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """An object as it was told, and when that was."""

    at: datetime
    event: str
    """ADDED, MODIFIED or DELETED."""
    obj: Json

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])


@dataclass
class Recorder:
    """Watches one collection, such as `/apis/GROUP/VERSION/PLURAL`, until it is left.

    A watch that ends (its API server restarts) begins again with what is stored then.
    """

    cluster: Cluster
    collection: str
    seen: list[Seen] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _watch: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._watch is not None:
            self._watch.terminate()
        self._thread.join()

    def of(self, name: str, since: datetime | None = None) -> list[Seen]:
        """What was told about one object, oldest first."""
        return [each for each in list(self.seen) if each.name == name and (since is None or each.at >= since)]

    def _follow(self) -> None:
        argv = [str(binary("kubectl")), f"--kubeconfig={self.cluster.kubeconfig}", "get", "--raw"]
        while not self._stopped.wait(0.5):
            self._watch = subprocess.Popen(
                [*argv, f"{self.collection}?watch=true"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert self._watch.stdout is not None
            if self._stopped.is_set():
                self._watch.terminate()
            for line in self._watch.stdout:
                told = json.loads(line)
                if told["type"] != "ERROR":
                    self.seen.append(Seen(datetime.now(UTC), told["type"], told["object"]))
            self._watch.wait()
