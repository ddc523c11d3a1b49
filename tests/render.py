"""Render the chart: `python -m tests.render` prints what `dist/install.yaml` must be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cluster.binaries import binary

ROOT: Final = Path(__file__).parent.parent
CHART: Final = ROOT / "charts" / "trtllm-operator"
NAMESPACE: Final = "trtllm-operator-system"
RELEASE: Final = "trtllm-operator"

HEADER: Final = f"""\
# The whole operator: namespace, custom resources, permissions, configuration, deployment.
# Made from charts/trtllm-operator with its default values (make dist). Install it with
#   kubectl apply -f install.yaml
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    app.kubernetes.io/name: trtllm-operator
    pod-security.kubernetes.io/enforce: restricted
"""


def render(*arguments: str) -> str:
    """The chart's manifests as Helm makes them; `arguments` are Helm's (`--set`, `--values`)."""
    command: Sequence[str] = (
        str(binary("helm")), "template", RELEASE, str(CHART), "--namespace", NAMESPACE, *arguments
    )  # fmt: skip
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def install_manifest() -> str:
    """The chart with its default values, for those who install without Helm."""
    return HEADER + render()


if __name__ == "__main__":
    sys.stdout.write(install_manifest())
