"""A test double: one node that runs no container. It binds every pod, plays its life and serves its log.

Of the operator's own pod it runs the program: as a process of this machine, with the arguments and the configuration
that the pod was given, and with the rights of its service account.
"""

from __future__ import annotations

import http.server
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from tests.builders import VERSIONS, smollm2_facts
from tests.cluster.api import ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.network import free_ports
from tests.operator_process import OperatorProcess
from trtllm_engine.contract import Progress, Result, Step
from trtllm_operator.api.names import ROLE_LABEL

Json = dict[str, Any]

NAME: Final = "played"
ROUND: Final = 0.3
"""Seconds between two looks at the pods."""
HEARTBEAT: Final = 10.0
"""Seconds between two renewals of the node's lease; the controller manager misses it after 40."""
ADDRESS: Final = "127.0.0.1"
OPERATOR: Final = {"app.kubernetes.io/name": "trtllm-operator", "app.kubernetes.io/component": "operator"}
"""Labels of the pods that the chart makes."""


@dataclass
class PlayedNode:
    """Plays until it is left; a build takes `build_seconds` and says a line for every half percent."""

    cluster: Cluster
    folder: Path
    build_seconds: float
    operator: OperatorProcess | None = None
    _began: dict[str, float] = field(default_factory=dict)
    """When a pod began to run, by namespace and name."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _trouble: list[Exception] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._api = self.cluster.plane.api()
        self._logs = self._serve_logs()
        self._introduce()
        self._threads = [threading.Thread(target=self._logs.serve_forever), threading.Thread(target=self._play)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._logs.shutdown()
        for thread in self._threads:
            thread.join()
        self._logs.server_close()
        if self.operator is not None:
            self.operator.stop()
        if self._trouble:
            raise self._trouble[0]

    # ---- what a kubelet says about itself

    def _introduce(self) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}}
        self._api.create("/api/v1/nodes", node)
        ready = {"type": "Ready", "status": "True", "reason": "Played", "lastTransitionTime": _now()}
        status = {
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": ADDRESS}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.server_address[1]}},
            "capacity": {"cpu": "64", "memory": "512Gi", "pods": "500"},
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "500"},
        }
        self._api.merge(f"/api/v1/nodes/{NAME}/status", {"status": status})

    def _beat(self) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NAME}"
        spec = {"holderIdentity": NAME, "leaseDurationSeconds": 40, "renewTime": f"{_now()[:-1]}.000000Z"}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}, "spec": spec}
        self._api.apply(path, lease)

    def _serve_logs(self) -> http.server.ThreadingHTTPServer:
        """As the API server asks: /containerLogs/NAMESPACE/POD/CONTAINER."""
        node, key = self, self.folder / "kubelet.pem"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={NAME}"),
                *("-keyout", str(key), "-out", f"{key}.crt"),
            ],
            check=True,
            capture_output=True,
        )

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, _, namespace, pod, *_ = self.path.partition("?")[0].split("/")
                body = "".join(node.lines(f"{namespace}/{pod}")).encode()
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer((ADDRESS, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{key}.crt", key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return server

    def lines(self, pod: str) -> Iterator[str]:
        """What a build has said until now, its last lines."""
        if (began := self._began.get(pod)) is None:
            return
        share = min(1.0, (time.monotonic() - began) / self.build_seconds)
        for half in range(max(0, int(200 * share) - 10), int(200 * share) + 1):
            left = int(self.build_seconds * (1 - half / 200))
            line = Progress(ts=_now(), step=Step.WEIGHTS, percent=half / 2, eta_seconds=left, detail=f"layer {half}")
            yield line.to_json() + "\n"

    # ---- what it does with pods

    def _play(self) -> None:
        beaten = -HEARTBEAT
        while not self._stopped.wait(ROUND):
            try:
                if time.monotonic() - beaten > HEARTBEAT:
                    self._beat()
                    beaten = time.monotonic()
                for pod in self._api.get("/api/v1/pods")["items"]:
                    self._tend(pod)
            except ApiError as error:
                # A pod that somebody deleted or changed meanwhile is looked at again in the next round.
                if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    self._trouble.append(error)
            except Exception as error:
                self._trouble.append(error)
                return

    def _tend(self, pod: Json) -> None:
        meta, phase = pod["metadata"], pod["status"].get("phase", "Pending")
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        labels = meta.get("labels") or {}
        role = "operator" if labels.items() >= OPERATOR.items() else labels.get(ROLE_LABEL)
        if "deletionTimestamp" in meta:
            if role == "operator":
                self._stop_operator()
            self._api.delete(f"{path}?gracePeriodSeconds=0")
        elif "nodeName" not in pod["spec"]:
            target = {"apiVersion": "v1", "kind": "Node", "name": NAME}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
            self._api.create(f"{path}/binding", binding)
        elif phase == "Pending" and role == "fetch":
            self._end(pod, Result(ok=True, facts=smollm2_facts(), versions=VERSIONS))
        elif phase == "Pending" and role in ("operator", "build", "server"):
            if role == "operator":
                self._start_operator(pod)
            self._began[f"{meta['namespace']}/{meta['name']}"] = time.monotonic()
            self._say(pod, "Running", {"running": {"startedAt": _now()}}, ready=True)
        elif phase == "Running" and role == "build" and self._is_built(f"{meta['namespace']}/{meta['name']}"):
            self._end(pod, Result(ok=True, files=1, bytes=2**28, seconds={"weights": self.build_seconds}))

    def _is_built(self, pod: str) -> bool:
        return time.monotonic() - self._began[pod] > self.build_seconds

    def _end(self, pod: Json, said: Result) -> None:
        ended = {"exitCode": said.code, "reason": "Completed", "finishedAt": _now(), "message": said.to_json()}
        self._say(pod, "Succeeded", {"terminated": ended}, ready=False)

    def _say(self, pod: Json, phase: str, state: Json, ready: bool) -> None:
        (name, *_) = (container["name"] for container in pod["spec"]["containers"])
        container = {"name": name, "image": "played", "imageID": "played", "ready": ready, "restartCount": 0}
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": _now()}],
            "containerStatuses": [container | {"state": state}],
        }
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
        self._api.merge(path, {"status": status})

    def _start_operator(self, pod: Json) -> None:
        """What is left out of its arguments are addresses and paths of its own pod."""
        namespace, account = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
        names = [v["configMap"]["name"] for v in pod["spec"]["volumes"] if "configMap" in v]
        config = self._api.get(f"/api/v1/namespaces/{namespace}/configmaps/{names[0]}")["data"]["config.yaml"]
        token = self.cluster.kubectl("-n", namespace, "create", "token", account).stdout.strip()
        kubeconfig = yaml.safe_load(self.cluster.kubeconfig.read_text())
        kubeconfig["users"][0]["user"] = {"token": token}
        file = self.folder / "operator.kubeconfig"
        file.write_text(yaml.safe_dump(kubeconfig))
        own = ("--config=", "--probe-address=", "--webhook-address=")
        arguments = [each for each in pod["spec"]["containers"][0]["args"] if not each.startswith(own)]
        arguments.append(f"--webhook-address={ADDRESS}:{free_ports(1)[0]}")
        self.operator = OperatorProcess(file, self.folder, yaml.safe_load(config), arguments=arguments).start()

    def _stop_operator(self) -> None:
        if self.operator is not None:
            self.operator.stop()
            self.operator = None


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
