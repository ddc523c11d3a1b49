"""The operator as a process of this machine: the same program as in its image, easier to kill at a chosen moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from tests.cluster.network import free_ports
from tests.cluster.waiting import wait_until

REPOSITORY: Final = Path(__file__).resolve().parents[1]


class OperatorProcess:
    """Starts, kills and restarts `trtllm-operator` against a cluster; logs go to one file."""

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        config: dict[str, Any],
        namespace: str | None = None,
        arguments: Sequence[str] = (),
        source: Path | None = None,
    ) -> None:
        """`source`: a folder with the packages of another version, laid out as in this repository."""
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "operator.log"
        self._config = folder / "config.yaml"
        self._config.write_text(yaml.safe_dump(config))
        self._kubeconfig = kubeconfig
        self._arguments = [*([] if namespace is None else ["--namespace", namespace]), *arguments]
        self._source = source
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def start(self) -> Self:
        """Returns when the operator leads and has seen everything once."""
        (self._port,) = free_ports(1)
        argv = [sys.executable, "-m", "trtllm_operator", "--config", str(self._config)]
        argv += ["--probe-address", f"127.0.0.1:{self._port}", "--lease-namespace", "default", *self._arguments]
        environment = os.environ | {"KUBECONFIG": str(self._kubeconfig)}
        if self._source is not None:
            environment["PYTHONPATH"] = f"{self._source / 'operator'}:{self._source / 'engine-image'}"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(argv, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
        wait_until(self._leads, "the operator to lead and to be ready", 60)
        return self

    def kill(self) -> None:
        """As the kernel would: no handler runs, nothing is finished, the lease stays held."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As the kubelet would; returns the exit code."""
        return self._end(signal.SIGTERM)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    def _leads(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the operator ended with {self._process.returncode}:\n{self.log.read_text()[-3000:]}")
        try:
            return "trtllm_operator_leader 1" in self.metrics() and self._ready()
        except (urllib.error.URLError, OSError):
            return False

    def _ready(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)

    def _end(self, number: int) -> int:
        assert self._process is not None, "the operator does not run"
        self._process.send_signal(number)
        code = self._process.wait(timeout=30)
        self._process = None
        return code
