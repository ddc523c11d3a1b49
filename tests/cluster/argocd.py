"""A real Argo CD beside a cluster: what compares and synchronises, and its cache. No web server, no command line."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.cluster import prerequisites
from tests.cluster.binaries import binaries, source
from tests.cluster.cluster import Cluster
from tests.cluster.network import free_ports
from tests.cluster.progress import step
from tests.cluster.waiting import wait_until

COMMANDS: Final = {"redis-server": "redis-server", "git": "git"}
"""Command to the Debian package that has it."""
PROJECT: Final = "github.com/argoproj/argo-cd/v3"
NAMESPACE: Final = "argocd"
CACHE: Final = "argocd-redis"
REPOSITORIES: Final = "argocd-repo-server"
CONTROLLER: Final = "argocd-application-controller"

DEFAULT_PROJECT: Final = """\
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{namespace: "*", server: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
"""
"""As the server makes it at its first start."""


@dataclass(frozen=True)
class ArgoCd:
    """An Argo CD that manages the cluster on which it is installed; `Cluster.down` ends it."""

    cluster: Cluster
    metrics_port: int

    @classmethod
    def install(cls, cluster: Cluster) -> Self:
        """Definitions and configuration as they are released, then the programs. Health scripts are not ours to add.

        Raises `HarnessError` if the machine lacks a program.
        """
        prerequisites.ensure(COMMANDS)
        with step("programs of Argo CD"):
            programs = binaries(["argocd", "helm"])
        with step("Argo CD"):
            manifests = source("argocd", PROJECT) / "manifests"
            cluster.kubectl("create", "namespace", NAMESPACE)
            cluster.kubectl("apply", "--server-side", "-k", str(manifests / "crds"))
            cluster.kubectl("-n", NAMESPACE, "apply", "-k", str(manifests / "base" / "config"))
            key = '{"stringData": {"server.secretkey": "of-a-test"}}'
            cluster.kubectl("-n", NAMESPACE, "patch", "secret", "argocd-secret", "-p", key)
            wait_until(lambda: _is_served(cluster), "Argo CD's kinds to be served", 30)
            cluster.kubectl("apply", "-f", "-", input=DEFAULT_PROJECT)
            argocd = cls(cluster, *free_ports(1))
            argocd._start(programs["argocd"], programs["helm"].parent)
        return argocd

    def refresh(self, application: str) -> None:
        """What a webhook of the Git server does: look at Git now, not at the next poll."""
        self.cluster.kubectl(
            *("-n", NAMESPACE, "annotate", "--overwrite", "application", application),
            "argocd.argoproj.io/refresh=normal",
        )

    def log(self) -> Path:
        """The application controller's: a JSON object per line."""
        return self.cluster.processes.log(CONTROLLER)

    def _start(self, program: Path, helm: Path) -> None:
        home = self.cluster.folder / "argocd"
        for folder in ("ssh", "tls", "gpg/source", "gpg/keys", "plugins", "temporary"):
            (home / folder).mkdir(parents=True)
        redis, repositories, repository_metrics = free_ports(3)
        environment = {
            "PATH": f"{helm}:{prerequisites.SEARCH_PATH}",
            "KUBECONFIG": str(self.cluster.kubeconfig),
            # https://kubernetes.default.svc then is the cluster of KUBECONFIG, as it is inside of one.
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_SSH_DATA_PATH": str(home / "ssh"),
            "ARGOCD_TLS_DATA_PATH": str(home / "tls"),
            "ARGOCD_GPG_DATA_PATH": str(home / "gpg/source"),
            "ARGOCD_GNUPGHOME": str(home / "gpg/keys"),
            "ARGOCD_PLUGINSOCKFILEPATH": str(home / "plugins"),
            "ARGOCD_ASK_PASS_SOCK": f"/tmp/argocd-{os.getpid()}.sock",
            "TMPDIR": str(home / "temporary"),
        }
        start = self.cluster.processes.start
        start(CACHE, ["redis-server", f"--port {redis}", "--bind 127.0.0.1", "--save", "", "--appendonly no"])
        start(
            REPOSITORIES,
            [
                *(str(program), "--disable-tls", f"--redis=127.0.0.1:{redis}"),
                *("--address=127.0.0.1", f"--port={repositories}"),
                *("--metrics-address=127.0.0.1", f"--metrics-port={repository_metrics}"),
            ],
            environment | {"ARGOCD_BINARY_NAME": REPOSITORIES},
        )
        start(
            CONTROLLER,
            [
                *(str(program), f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={NAMESPACE}"),
                *(f"--repo-server=127.0.0.1:{repositories}", "--repo-server-plaintext"),
                *(f"--redis=127.0.0.1:{redis}", f"--metrics-port={self.metrics_port}"),
                # Without a server to ask, an object's health can be read only where the controller writes it down.
                "--persist-resource-health",
            ],
            environment | {"ARGOCD_BINARY_NAME": CONTROLLER},
        )
        wait_until(self._works, "Argo CD's application controller", 60)

    def _works(self) -> bool:
        for name in (CACHE, REPOSITORIES, CONTROLLER):
            self.cluster.processes.require_alive(name)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _is_served(cluster: Cluster) -> bool:
    return all(
        cluster.kubectl("-n", NAMESPACE, "get", kind, check=False).returncode == 0
        for kind in ("applications.argoproj.io", "appprojects.argoproj.io")
    )
