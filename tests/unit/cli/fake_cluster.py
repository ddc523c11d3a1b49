"""A stand-in for the API server, over real HTTP: keeps objects, answers what `llmd` asks, and remembers it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import yaml

from tests.builders import merged
from trtllm_operator.cli.rights import USER_KINDS

Json = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


@dataclass
class FakeCluster:
    """Objects by path, logs by pod; `refuse` holds plurals that the user may not touch."""

    kubeconfig: Path
    objects: dict[str, Json] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    """Of a server behind a forwarded port, by path."""
    port: int = 0
    refuse: set[str] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)

    def put(self, *objects: Json, kind: str | None = None) -> None:
        """`kind` is the name in the table, where that is not the object's."""
        for obj in objects:
            meta = obj["metadata"]
            path = USER_KINDS[kind or obj["kind"]].path(meta.get("namespace", ""), meta["name"])
            self.objects[path] = obj

    def writes(self) -> list[Request]:
        return [request for request in self.requests if request.method != "GET"]

    def answer(self, request: Request) -> tuple[int, Any]:
        """Status and body; a text is a log."""
        folder, _, name = request.path.rpartition("/")
        if any(plural in request.path.split("/") for plural in self.refuse):
            return 403, failure(403, "Forbidden", f"the user cannot do that with {request.path}")
        if name == "log":
            pod = folder.rpartition("/")[2]
            return (200, self.logs[pod]) if pod in self.logs else (400, failure(400, "BadRequest", "not started"))
        if request.path in self.texts:
            return 200, self.texts[request.path]
        obj = self.objects.get(request.path)
        match request.method:
            case "GET" if request.path.rpartition("/")[2] in PLURALS:
                return 200, {"metadata": {"resourceVersion": "1"}, "items": list(self._matching(request))}
            case _ if obj is None:
                return 404, failure(404, "NotFound", f"{name} not found")
            case "PATCH":
                self.objects[request.path] = merged(obj, request.body)
                return 200, self.objects[request.path]
            case "DELETE":
                if request.body["preconditions"]["uid"] != obj["metadata"]["uid"]:
                    return 409, failure(409, "Conflict", "another uid")
                del self.objects[request.path]
                return 200, {}
            case _:
                return 200, obj

    def _matching(self, request: Request) -> Iterator[Json]:
        base, _, plural = request.path.rpartition("/")
        wanted = dict(pair.split("=") for pair in request.query.get("labelSelector", "").split(",") if pair)
        fields = dict(pair.split("=") for pair in request.query.get("fieldSelector", "").split(",") if pair)
        for path, obj in self.objects.items():
            folder = path.rpartition("/")[0]
            inside = folder == request.path or (
                "/namespaces/" not in base
                and folder.startswith(base + "/namespaces/")
                and folder.endswith(f"/{plural}")
            )
            labels = obj["metadata"].get("labels") or {}
            named = fields.get("metadata.name", obj["metadata"]["name"]) == obj["metadata"]["name"]
            about = fields.get("regarding.name", (obj.get("regarding") or {}).get("name")) == (
                obj.get("regarding") or {}
            ).get("name")
            if inside and named and about and wanted.items() <= labels.items():
                yield obj


PLURALS: Final = {kind.plural for kind in USER_KINDS.values()}


def failure(code: int, reason: str, message: str) -> Json:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


@contextmanager
def fake_cluster(folder: Path, namespace: str = "default") -> Iterator[FakeCluster]:
    """A cluster, and a kubeconfig in `folder` whose context has the namespace."""
    cluster = FakeCluster(folder / "kubeconfig")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length, url = int(self.headers.get("Content-Length") or 0), urlsplit(self.path)
            text = self.rfile.read(length)
            query = dict(parse_qsl(url.query))
            request = Request(self.command, url.path, query, json.loads(text) if text else None)
            cluster.requests.append(request)
            status, answer = cluster.answer(request)
            body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PATCH = do_DELETE = do_POST = handle_any

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    cluster.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    context = {"cluster": "fake", "user": "fake", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": context}],
        "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "fake", "user": {"token": "none"}}],
    }
    cluster.kubeconfig.write_text(yaml.safe_dump(config))
    try:
        yield cluster
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
