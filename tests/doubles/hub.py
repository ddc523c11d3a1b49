"""A double of a model hub: an HTTP server on loopback that speaks as much of the hub's protocol as its client uses.

Revision info with file sizes, HEAD and GET of files with etag, commit and range headers, redirects to none. Gated and
private repositories ask for a token. Faults can be set: a connection cut in the middle of a file.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import unquote

LFS_FROM = 16 * 1024
"""Bytes from which a file counts as large, and the hub tells its sha256."""


@dataclass(slots=True)
class Repo:
    """One model repository with one commit, known as `main` too."""

    files: Mapping[str, bytes]
    commit: str = "0123456789abcdef0123456789abcdef01234567"
    token: str | None = None
    """Needed to read it."""
    gated: bool = False
    """Without the token the hub says that the repository exists but is gated."""


@dataclass(slots=True)
class HubDouble:
    """Serves `repos`; a context manager. `requests` lists what was asked, as (method, path, range)."""

    repos: dict[str, Repo] = field(default_factory=dict)
    cut_after: dict[str, int] = field(default_factory=dict)
    """File name to bytes: the next GET of it ends there, with the connection closed. Used up by it."""
    lie_about: dict[str, bytes] = field(default_factory=dict)
    """File name to other bytes of the same size, which are sent instead."""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    address: str = "127.0.0.1"
    """Where it listens."""
    endpoint: str = ""
    _server: ThreadingHTTPServer | None = None

    def add(self, name: str, folder: Path, **settings: object) -> Repo:
        """Offer a folder's files, and two that no one should fetch."""
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        files |= {
            "pytorch_model.bin": b"\0" * 64,
            "modeling_custom.py": b"raise SystemExit\n",
            "README.md": b"# model\n",
        }
        repo = Repo(files, **settings)  # type: ignore[arg-type]
        self.repos[name] = repo
        return repo

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer((self.address, 0), type("Handler", (_Handler,), {"double": self}))
        self.endpoint = f"http://{self.address}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="hub-double", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def downloads(self, name: str) -> list[str | None]:
        """The range headers of the GETs of one file."""
        return [span for method, path, span in self.requests if method == "GET" and path.endswith(f"/{name}")]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: HubDouble

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Tests read `requests` instead."""

    def _answer(self, *, body: bool) -> None:
        path = unquote(self.path.partition("?")[0])
        self.double.requests.append((self.command, path, self.headers.get("Range")))
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            repo = self._repo(match[1], match[2] or "main")
            if repo is not None:
                self._send(200, {"Content-Type": "application/json"}, json.dumps(_info(match[1], repo)).encode(), body)
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            repo = self._repo(match[1], match[2])
            if repo is not None:
                self._file(repo, match[3], body)
        else:
            self._error(404, "EntryNotFound")

    def _repo(self, name: str, revision: str) -> Repo | None:
        """The repository, or None after an error was sent."""
        repo = self.double.repos.get(name)
        if repo is None:
            self._error(401, "RepoNotFound")
        elif repo.token and self.headers.get("Authorization") != f"Bearer {repo.token}":
            self._error(*((403, "GatedRepo") if repo.gated else (401, "RepoNotFound")))
        elif revision not in ("main", repo.commit):
            self._error(404, "RevisionNotFound")
        else:
            return repo
        return None

    def _file(self, repo: Repo, name: str, body: bool) -> None:
        if name not in repo.files:
            self._error(404, "EntryNotFound")
            return
        data = self.double.lie_about.get(name, repo.files[name])
        headers = {"ETag": f'"{hashlib.sha256(repo.files[name]).hexdigest()}"', "X-Repo-Commit": repo.commit}
        status, start = 200, 0
        if span := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
            status, start = 206, int(span[1])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(status, headers, data[start:], body, cut=self.double.cut_after.pop(name, None) if body else None)

    def _error(self, status: int, code: str) -> None:
        self._send(status, {"X-Error-Code": code, "X-Error-Message": code}, b"{}", self.command == "GET")

    def _send(self, status: int, headers: Mapping[str, str], data: bytes, body: bool, cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data[:cut])
        if cut is not None:
            self.close_connection = True


def _info(name: str, repo: Repo) -> dict[str, object]:
    siblings: list[dict[str, object]] = []
    for file, data in repo.files.items():
        sibling: dict[str, object] = {"rfilename": file, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}
        if len(data) >= LFS_FROM:
            sibling["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        siblings.append(sibling)
    return {"id": name, "modelId": name, "sha": repo.commit, "siblings": siblings, "private": False, "tags": []}
