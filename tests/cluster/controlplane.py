"""etcd, API server, controller manager and scheduler of one cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.api import Api
from tests.cluster.audit import POLICY
from tests.cluster.binaries import binary
from tests.cluster.network import Network
from tests.cluster.processes import Processes
from tests.cluster.users import Users
from tests.cluster.waiting import wait_until

COMPONENTS: Final = ("etcd", "apiserver", "controller-manager", "scheduler")
PORTS: Final = ("etcd", "etcd-peer", "apiserver", "controller-manager", "scheduler")
"""Each listens on a free port of its own."""


@dataclass(frozen=True)
class ControlPlane:
    """The control plane of the cluster in `folder`; `ports` has one entry per name of `PORTS`."""

    folder: Path
    processes: Processes
    network: Network
    ports: dict[str, int]
    users: Users

    @property
    def server_url(self) -> str:
        """Where the API server answers, for the machine and for pods."""
        return f"https://{self.network.node_address}:{self.ports['apiserver']}"

    @property
    def audit_log(self) -> Path:
        """See `audit`."""
        return self.folder / "logs" / "audit.jsonl"

    def api(self, user: str = "harness") -> Api:
        """A client that acts as one of `users.USERS`."""
        return Api(self.server_url, self.users.token(user), self.users.ca)

    def start(self, scheduler: bool) -> None:
        """Start all for the first time; returns when the API server is ready."""
        self.processes.start("etcd", self._etcd())
        self.processes.start("apiserver", self._apiserver())
        self.wait_ready()
        self.processes.start("controller-manager", self._controller("kube-controller-manager"))
        if scheduler:
            self.processes.start("scheduler", self._controller("kube-scheduler"))

    def wait_ready(self, seconds: float = 60) -> None:
        """Wait for the API server's own word; says why if it died instead."""

        def ready() -> bool:
            for name in ("etcd", "apiserver"):
                self.processes.require_alive(name)
            return self.users.ca.exists() and self.api().ready()

        wait_until(ready, f"the API server at {self.server_url} (log: {self.processes.log('apiserver')})", seconds)

    def _etcd(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{self.ports[name]}" for name in ("etcd", "etcd-peer"))
        return [
            str(binary("etcd")),
            *("--name", "etcd", f"--initial-cluster=etcd={peer}", f"--data-dir={self.folder / 'etcd'}"),
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            "--unsafe-no-fsync",  # survives the end of the process, not of the machine
            "--log-level=warn",
        ]

    def _apiserver(self) -> list[str]:
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(POLICY))
        address = self.network.node_address
        return [
            str(binary("kube-apiserver")),
            f"--etcd-servers=http://127.0.0.1:{self.ports['etcd']}",
            f"--bind-address={address}",
            f"--advertise-address={address}",
            f"--secure-port={self.ports['apiserver']}",
            # On loopback no pod can come in by the `kubernetes` Service, and loopback is refused as an endpoint.
            f"--endpoint-reconciler-type={'lease' if self.network.number else 'none'}",
            f"--cert-dir={self.users.ca.parent}",
            f"--token-auth-file={self.users.token_file}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.users.service_account_key}",
            f"--service-account-signing-key-file={self.users.service_account_key}",
            f"--service-cluster-ip-range={self.network.services}",
            f"--kubelet-client-certificate={self.users.kubelet_client}",
            f"--kubelet-client-key={self.users.kubelet_client}",
            # Otherwise logs and exec try to resolve the node's name.
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=10000",
            "--allow-privileged=true",
            "--profiling=false",
        ]

    def _controller(self, program: str) -> list[str]:
        name = program.removeprefix("kube-")
        kubeconfig = self.users.kubeconfig(name, self.server_url)
        common = [
            str(binary(program)),
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports[name]}",
            # The ConfigMap that this looks for exists only with a request-header authority.
            "--authentication-skip-lookup",
            "--leader-elect=false",
            "--profiling=false",
        ]
        if name == "scheduler":
            return common
        return [
            *common,
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.users.service_account_key}",
            f"--root-ca-file={self.users.ca}",
            "--allocate-node-cidrs=false",
        ]
