"""Who may talk to the API server: a fixed table of tokens, and what proves the API server's own identity."""

from __future__ import annotations

import json
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.errors import HarnessError

NODE_NAME: Final = "node-0"

USERS: Final = {
    "admin": ("admin", ["system:masters"]),
    "harness": ("cluster-harness", ["system:masters"]),
    "tenant": ("tenant", []),
    "viewer": ("viewer", []),
    "controller-manager": ("system:kube-controller-manager", []),
    "scheduler": ("system:kube-scheduler", []),
    "kube-proxy": ("system:kube-proxy", []),
    "coredns": ("system:coredns", []),
    "kubelet": (f"system:node:{NODE_NAME}", ["system:nodes"]),
}
"""Short name to user name and groups. `tenant` and `viewer` may do nothing until a test binds roles to them."""


@dataclass(frozen=True)
class Users:
    """The tokens and keys of one cluster, kept in one folder."""

    folder: Path

    @property
    def token_file(self) -> Path:
        """Rows `token,user,uid,"groups"`, as the API server reads them at its start."""
        return self.folder / "tokens.csv"

    @property
    def service_account_key(self) -> Path:
        """Signs the tokens of service accounts."""
        return self.folder / "service-accounts.key"

    @property
    def kubelet_client(self) -> Path:
        """Certificate with its key: the API server's identity towards the kubelet. It is its own authority."""
        return self.folder / "kubelet-client.pem"

    @property
    def ca(self) -> Path:
        """What the API server's certificate is checked with; the API server makes both at its first start."""
        return self.folder / "serving" / "apiserver.crt"

    def create(self) -> None:
        """Make new tokens and keys."""
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o700)
        rows = [
            f'{secrets.token_hex(16)},{user},{name},"{",".join(groups)}"\n' for name, (user, groups) in USERS.items()
        ]
        self.token_file.write_text("".join(rows))
        _openssl("genrsa", "-out", str(self.service_account_key), "2048")
        pem = str(self.kubelet_client)
        _openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "365", "-keyout", pem, "-out", f"{pem}.crt"),
            *("-subj", "/O=system:masters/CN=kube-apiserver", "-addext", "extendedKeyUsage=clientAuth"),
        )
        certificate = Path(f"{pem}.crt")
        with self.kubelet_client.open("a") as file:
            file.write(certificate.read_text())
        certificate.unlink()

    def token(self, name: str) -> str:
        """The bearer token of a user of `USERS`."""
        for row in self.token_file.read_text().splitlines():
            token, _, uid, _ = row.split(",", 3)
            if uid == name:
                return token
        raise HarnessError(f"no user {name!r} in the cluster; users are: {', '.join(USERS)}")

    def kubeconfig(self, name: str, server: str) -> Path:
        """A kubeconfig file for a user, written anew. The API server must have started once."""
        file = self.folder / f"{name}.kubeconfig"
        cluster = {"server": server, "certificate-authority": str(self.ca)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": self.token(name)}}],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": name}}],
            "current-context": "cluster",
        }
        file.write_text(json.dumps(content, indent=1))
        return file


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarnessError(f"openssl {arguments[0]}: {done.stderr.strip()}")
