"""A namespace of a real cluster, in the words of a test: apply, wait, ask, look."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml

from tests.cluster.binaries import binary
from tests.cluster.cluster import Cluster
from tests.cluster.network import free_ports
from tests.cluster.waiting import wait_until
from trtllm_operator.api.names import API_VERSION

Object = dict[str, Any]

READY_WITHIN: Final = 180.0
"""Seconds for the whole path on two busy cores, real model or tiny."""


def condition(obj: Mapping[str, Any], type: str) -> Object:
    """One condition of an object; empty if it has none of this type."""
    found: list[Object] = [c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] == type]
    return found[0] if found else {}


def is_ready(obj: Mapping[str, Any]) -> bool:
    return (
        condition(obj, "Ready").get("status") == "True"
        and obj["status"]["observedGeneration"] == obj["metadata"]["generation"]
    )


def is_stalled(obj: Mapping[str, Any]) -> bool:
    return condition(obj, "Stalled").get("status") == "True"


def deployment(name: str, model: str = "/models/tiny", **spec: Any) -> Object:
    """An LLMDeployment of a model on the claim `models`, built by torch and computed on the CPU."""
    base: Object = {
        "model": model,
        "modelVolume": {"persistentVolumeClaim": {"claimName": "models"}},
        "dtype": "float32",
        "buildConfig": {"maxBatchSize": 2, "maxInputLen": 32, "maxSeqLen": 64},
        "engine": {"toolchain": "torch", "storage": {"size": "1Gi"}},
        "serving": {"resources": {"requests": {"cpu": "50m", "memory": "128Mi"}}},
    }
    return {"apiVersion": API_VERSION, "kind": "LLMDeployment", "metadata": {"name": name}, "spec": base | spec}


def engine(name: str, model: str = "/models/tiny", **spec: Any) -> Object:
    """An LLMEngine of a model on the claim `models`."""
    base: Object = {
        "model": model,
        "modelVolume": {"persistentVolumeClaim": {"claimName": "models"}},
        "dtype": "float32",
        "buildConfig": {"maxBatchSize": 2, "maxInputLen": 32, "maxSeqLen": 64},
        "toolchain": "torch",
        "storage": {"size": "1Gi"},
    }
    return {"apiVersion": API_VERSION, "kind": "LLMEngine", "metadata": {"name": name}, "spec": base | spec}


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace of `cluster`."""

    cluster: Cluster
    name: str

    @classmethod
    def create(cls, cluster: Cluster, test: str) -> Self:
        label = re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")[:40].strip("-")
        name = f"{label}-{int(time.time() * 10) % 10**7}"
        cluster.kubectl("create", "namespace", name)
        return cls(cluster, name)

    def delete(self) -> None:
        self.kubectl("delete", "namespace", self.name, "--wait=false")

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.cluster.kubectl("-n", self.name, *args, input=input, check=check)

    def apply(self, *objects: Object) -> None:
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str) -> Object | None:
        done = self.kubectl("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def list(self, kind: str) -> list[Object]:
        items: list[Object] = json.loads(self.kubectl("get", kind, "-o", "json").stdout)["items"]
        return items

    def wait(
        self, kind: str, name: str, until: Callable[[Object], bool], what: str, seconds: float = READY_WITHIN
    ) -> Object:
        """The object, as soon as it is so. Fails with its conditions and events when it is not in time."""
        last: Object | None = None

        def look() -> Object | None:
            nonlocal last
            last = self.get(kind, name)
            return last if last is not None and until(last) else None

        try:
            return wait_until(look, f"{kind} {self.name}/{name} to be {what}", seconds, interval=0.25)
        except Exception as error:
            error.add_note(yaml.safe_dump((last or {}).get("status", "no status")))
            error.add_note(self.kubectl("get", "pods,jobs,statefulsets,events", check=False).stdout)
            raise

    def wait_any(self, kind: str, until: Callable[[Object], bool], what: str, seconds: float) -> Object:
        """The first object of a kind that is so."""

        def look() -> Object | None:
            return next((obj for obj in self.list(kind) if until(obj)), None)

        return wait_until(look, f"any {kind} in {self.name} to be {what}", seconds, interval=0.25)

    def wait_ready(self, kind: str, name: str, seconds: float = READY_WITHIN) -> Object:
        """Fails at once when it is Stalled: nothing would change that any more."""

        def ready(obj: Object) -> bool:
            assert not is_stalled(obj), condition(obj, "Stalled")
            return is_ready(obj)

        return self.wait(kind, name, ready, "Ready", seconds)

    def wait_stalled(self, kind: str, name: str, seconds: float = READY_WITHIN) -> Object:
        return self.wait(kind, name, is_stalled, "Stalled", seconds)

    def claim_folder(self, name: str, size: str) -> Path:
        """Make a claim, and return the folder of this machine that is its volume."""
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
        }
        self.apply(claim)
        self.wait("pvc", name, lambda c: c["status"].get("phase") == "Bound", "bound", 30)
        return self.cluster.storage_folder(self.name, name)

    def folder_of(self, claim: str) -> Path:
        return self.cluster.storage_folder(self.name, claim)

    @contextmanager
    def forwarded(self, service: str, port: int) -> Iterator[int]:
        """A local port that leads through the Service, as `kubectl port-forward` does for a person."""
        (local,) = free_ports(1)
        argv = [str(binary("kubectl")), f"--kubeconfig={self.cluster.kubeconfig}", "-n", self.name]
        process = subprocess.Popen([*argv, "port-forward", f"svc/{service}", f"{local}:{port}"], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert b"Forwarding" in line, f"kubectl port-forward says {line!r}"
            yield local
        finally:
            process.terminate()
            process.wait(timeout=10)

    def complete(self, service: str, prompt: str, max_tokens: int = 8) -> Object:
        """Ask the deployment to go on with a text, greedily; the whole answer of /v1/completions."""
        with self.forwarded(service, 8000) as port:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            body = {"model": service, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data: Object = json.loads(answer.read())
            assert answer.status == 200, data
            return data
