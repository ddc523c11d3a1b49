"""kubectl, for one cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.demo.steps import Failure

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A kubectl program and the kubeconfig that it reads; None: what the user's environment says."""

    program: str
    kubeconfig: Path | None = None

    def argv(self, *arguments: str) -> list[str]:
        """The whole command line."""
        place = ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        return [self.program, *place, *arguments]

    def text(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Standard output. Raises `Failure` with kubectl's own words; without `check` they are the answer."""
        done = subprocess.run(
            self.argv(*arguments), input=stdin, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode and check:
            raise Failure(f"kubectl {' '.join(arguments[:6])}: {done.stderr.strip()}")
        return done.stdout if not done.returncode else done.stdout + done.stderr

    def json(self, *arguments: str) -> Json:
        """An object, or a list of them."""
        answer: Json = json.loads(self.text(*arguments, "-o", "json"))
        return answer

    def exists(self, *arguments: str) -> bool:
        """Whether `kubectl get` finds it."""
        return bool(self.text("get", *arguments, "--ignore-not-found", "-o", "name").strip())

    def apply(self, manifest: str) -> str:
        """Server-side: the objects are what the manifest says, whoever wrote them before."""
        return self.text(
            "apply", "--server-side", "--force-conflicts", "--field-manager=demo", "-f", "-", stdin=manifest
        )
