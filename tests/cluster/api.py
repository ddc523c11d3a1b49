"""The Kubernetes API as the harness needs it: JSON over HTTPS with a token, standard library only."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Manifest = dict[str, Any]
"""A Kubernetes object as JSON; its shape is the API server's business."""

USER_AGENT = "cluster-harness"


class ApiError(Exception):
    """The API server's refusal; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Api:
    """One user's way to one API server. `server` is its URL, `ca` the file that its certificate is checked with."""

    server: str
    token: str
    ca: Path

    def get(self, path: str) -> Manifest:
        """One object, or a list."""
        return self._request("GET", path)

    def create(self, path: str, body: Manifest) -> Manifest:
        """POST to a collection."""
        return self._request("POST", path, body)

    def merge(self, path: str, body: Manifest) -> Manifest:
        """JSON merge patch."""
        return self._request("PATCH", path, body, "application/merge-patch+json")

    def apply(self, path: str, body: Manifest) -> Manifest:
        """Server-side apply; the object need not exist."""
        query = f"fieldManager={USER_AGENT}&force=true"
        return self._request("PATCH", f"{path}?{query}", body, "application/apply-patch+yaml")

    def delete(self, path: str) -> None:
        """Delete an object; nothing happens if it is gone."""
        try:
            self._request("DELETE", path)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def ready(self) -> bool:
        """Whether the API server calls itself ready."""
        try:
            self._send("GET", "/readyz", None, "application/json")
        except (ApiError, OSError, http.client.HTTPException):
            return False
        return True

    def _request(self, verb: str, path: str, body: Manifest | None = None, kind: str = "application/json") -> Manifest:
        answer: Manifest = json.loads(self._send(verb, path, body, kind))
        return answer

    def _send(self, verb: str, path: str, body: Manifest | None, kind: str) -> bytes:
        url = urlsplit(self.server)
        context = ssl.create_default_context(cafile=str(self.ca))
        connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=10, context=context)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "User-Agent": USER_AGENT}
        try:
            connection.request(verb, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise ApiError(response.status, answer.decode(errors="replace"))
        return answer
