"""The only way to the API server, the watch apart: typed verbs over plain JSON objects.

What may be sent twice is sent again after a hiccup; what may not (a creation) fails, and the next look decides anew.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration

from ..api.names import MANAGER
from ..reconcile.resync import Listing
from ..reconcile.store import Object
from .connection import CONNECT_TIMEOUT, REQUEST_TIMEOUT, api_client
from .errors import ApiError, Conflict, Gone, NotFound, NotLeading, Unreachable, error_of
from .kinds import KINDS, Kind
from .metrics import Metrics

PAGE: Final = 500
"""Objects per page of a LIST, as in kubectl."""
BACKOFF: Final = (0.2, 1.0, 4.0)
"""Seconds between the tries of a request that may be repeated."""
LONGEST_RETRY_AFTER: Final = 30.0
"""Seconds; a server that wants a longer pause gets it from the work queue's backoff."""

_APPLY: Final = "application/apply-patch+yaml"
_JSON: Final = "application/json"
# JSON is YAML, and sent as such the API server writes it anew in its own way. Free-form data (a ControllerRevision's)
# would be kept byte for byte otherwise, and then no patch of the object is possible: any patch rewrites the bytes, and
# the data is immutable. The garbage collector could not orphan it.
_YAML: Final = "application/yaml"


class Takeover(NamedTuple):
    """A field that a foreign manager had set and that we took back."""

    manager: str
    field: str


class Answer(NamedTuple):
    status: int
    body: bytes


TellTakeover = Callable[[Object, Sequence[Takeover]], Awaitable[None]]


async def tell_nobody(obj: Object, fields: Sequence[Takeover]) -> None:
    """For clients whose takeovers concern no user."""


class Client:
    """Kubernetes verbs for the kinds of a table.

    Every method raises `ClusterError` (`errors.py`): `Unreachable` without an answer, else an `ApiError`.

    - `kinds`: the operator's own, unless somebody with other rights asks.
    - `may_write` is asked before every write but a Lease's: an operator that lost its lease writes nothing.
    - `on_takeover` is told when `apply` took fields from another manager.
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        kinds: Mapping[str, Kind] = KINDS,
        metrics: Metrics | None = None,
        may_write: Callable[[], bool] = lambda: True,
        on_takeover: TellTakeover = tell_nobody,
    ) -> None:
        self._api: ApiClient = api_client(configuration)
        self._kinds = kinds
        self._metrics = metrics or Metrics()
        self.may_write = may_write
        self.on_takeover = on_takeover

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object as it is now, read from etcd; None if there is none."""
        try:
            answer = await self._send("get", kind, namespace, name)
        except NotFound:
            return None
        return self._object(answer, kind)

    async def list(self, kind: str, namespace: str | None = None) -> Listing:
        """The objects of a kind that the table selects, in pages; `namespace` None: everywhere."""
        entry = self._kinds[kind]
        selectors = {"labelSelector": entry.selector or "", "fieldSelector": entry.field_selector or ""}
        query = {"limit": str(PAGE), **selectors}
        try:
            return await self._pages(kind, namespace or "", query)
        except Gone:
            # The pages took longer than the API server keeps a version: once more, in one piece.
            return await self._pages(kind, namespace or "", query | {"limit": ""})

    async def create(self, manifest: Mapping[str, Any]) -> Object | None:
        """Create; None if an object of that name exists already."""
        kind, namespace, _ = _names(manifest)
        try:
            answer = await self._send(
                "create",
                kind,
                namespace,
                query={"fieldManager": MANAGER},
                body=json.dumps(manifest),
                content_type=_YAML,
            )
        except Conflict as error:
            if error.reason == "AlreadyExists":
                return None
            raise
        return self._object(answer, kind)

    async def apply(self, manifest: Mapping[str, Any]) -> Object:
        """Server-side apply: create the object or mend the manifest's fields, taking them from whoever set them."""
        kind, namespace, name = _names(manifest)
        query = {"fieldManager": MANAGER, "force": "false"}
        taken: tuple[Takeover, ...] = ()
        try:
            answer = await self._send("patch", kind, namespace, name, query=query, body=manifest, content_type=_APPLY)
        except Conflict as error:
            taken = _takeovers(error)
            if not taken:
                raise
            query["force"] = "true"
            answer = await self._send("patch", kind, namespace, name, query=query, body=manifest, content_type=_APPLY)
        obj = self._object(answer, kind)
        if taken:
            await self.on_takeover(obj, taken)
        return obj

    async def apply_status(self, obj: Object, status: Mapping[str, Any]) -> Object:
        """Replace our status of `obj`, if it is still in the version that the status was computed from.

        Raises `Conflict` if it is not: the next look computes it anew.
        """
        kind, namespace, name = _names(obj)
        meta = {key: obj["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
        body = {"apiVersion": self._kinds[kind].api_version, "kind": kind, "metadata": meta, "status": status}
        query = {"fieldManager": MANAGER, "force": "true"}
        answer = await self._send("patch", kind, namespace, name, "status", query=query, body=body, content_type=_APPLY)
        return self._object(answer, kind)

    async def update(self, obj: Object) -> Object:
        """Replace the whole object in the version that it carries. Raises `Conflict` if there is a newer one."""
        kind, namespace, name = _names(obj)
        return self._object(await self._send("update", kind, namespace, name, body=obj), kind)

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        propagation: str = "Background",
        force: bool = False,
    ) -> bool:
        """Delete exactly this object; False if it is gone already.

        Raises `Conflict` if another object has the name by now, or another version when one was given.
        `propagation` is Background, Foreground or Orphan; `force` waits for nobody to confirm the end.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": propagation,
        } | ({"gracePeriodSeconds": 0} if force else {})
        try:
            await self._send("delete", kind, namespace, name, body=body)
        except NotFound:
            return False
        return True

    async def pod_log(self, namespace: str, name: str, *, tail_lines: int, limit_bytes: int) -> str:
        """The last lines of a pod's only container. A byte limit cuts at the end of them."""
        query = {"tailLines": str(tail_lines), "limitBytes": str(limit_bytes)}
        answer = await self._send("get", "Pod", namespace, name, "log", query=query)
        return answer.body.decode(errors="replace")

    async def create_event(self, event: Mapping[str, Any]) -> None:
        """Create an Event of events.k8s.io/v1; its name is unique, so an existing one is this one."""
        await self.create(event)

    async def serves(self, kind: str) -> bool:
        """Whether the API server knows the kind by now (a definition may be installed after us)."""
        entry = self._kinds[kind]
        url = entry.path().rsplit("/", 1)[0]
        try:
            answer = await self._try("get", "GET", url, {}, None, _JSON)
        except NotFound:
            return False
        return any(resource["name"] == entry.plural for resource in json.loads(answer.body)["resources"])

    def _object(self, answer: Answer, kind: str) -> Object:
        return _trim(json.loads(answer.body), kind, self._kinds[kind])

    async def _pages(self, kind: str, namespace: str, query: dict[str, str]) -> Listing:
        items: list[Object] = []
        token = ""
        while True:
            answer = await self._send("list", kind, namespace, query=query | {"continue": token})
            page = json.loads(answer.body)
            items += [_trim(item, kind, self._kinds[kind]) for item in page["items"]]
            token = page["metadata"].get("continue", "")
            if not token:
                return Listing(items, int(page["metadata"]["resourceVersion"]))

    async def _send(
        self,
        verb: str,
        kind: str,
        namespace: str,
        name: str = "",
        subresource: str = "",
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | str | None = None,
        content_type: str = _JSON,
    ) -> Answer:
        entry = _allowed(self._kinds, verb, kind, subresource)
        if verb in _WRITES and kind != "Lease" and not self.may_write():
            raise NotLeading(f"{verb} {kind} {namespace}/{name}: not sent, the lease is not ours any more")
        url = entry.path(namespace, name, subresource)
        repeatable = verb != "create"
        for pause in BACKOFF:
            try:
                return await self._try(verb, _METHODS[verb], url, query or {}, body, content_type)
            except ServerBusy as error:
                if not repeatable and error.status != 429:
                    raise
                pause = max(pause, min(error.retry_after, LONGEST_RETRY_AFTER))
            except Unreachable:
                if not repeatable:
                    raise
            await asyncio.sleep(pause)
        return await self._try(verb, _METHODS[verb], url, query or {}, body, content_type)

    async def _try(
        self,
        verb: str,
        method: str,
        url: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | str | None,
        content_type: str,
    ) -> Answer:
        """One request. Raises `Unreachable` or an `ApiError`."""
        what = f"{verb} {url}"
        request = await self._api.param_serialize(
            method,
            url,
            query_params=[(key, value) for key, value in query.items() if value],
            header_params={"Accept": "application/json, */*", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
        try:
            response = await self._api.call_api(*request, _request_timeout=timeout)
            content: bytes = await response.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._metrics.count_request(verb, "error")
            raise Unreachable(f"{what}: {error or type(error).__name__}") from error
        self._metrics.count_request(verb, str(response.status))
        if response.status < 300:
            return Answer(response.status, content)
        if response.status == 429 or response.status >= 500:
            raise ServerBusy(error_of(what, response.status, content), response.headers.get("Retry-After"))
        raise error_of(what, response.status, content)


class ServerBusy(ApiError):
    """429 or 5xx; `retry_after` is what the server asked for, in seconds (0: nothing)."""

    def __init__(self, error: ApiError, retry_after: str | None) -> None:
        Exception.__init__(self, str(error))
        self.status, self.reason, self.message, self.causes = error.status, error.reason, error.message, error.causes
        self.retry_after = float(retry_after) if retry_after and retry_after.isdigit() else 0.0


_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_WRITES: Final = frozenset({"create", "update", "patch", "delete"})


def _allowed(kinds: Mapping[str, Kind], verb: str, kind: str, subresource: str) -> Kind:
    """The table's entry; raises `LookupError` for what the table, and so the operator's role, does not grant."""
    entry = kinds[kind]
    granted = entry.subresources.get(subresource, frozenset()) if subresource else entry.verbs
    if verb not in granted:
        what = f"{entry.plural}/{subresource}" if subresource else entry.plural
        raise LookupError(f"kinds.KINDS does not grant {verb} on {what}; it grants {', '.join(sorted(granted))}")
    return entry


def _names(manifest: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = manifest["metadata"]
    return manifest["kind"], meta.get("namespace", ""), meta["name"]


def _trim(obj: Object, kind: str, entry: Kind) -> Object:
    """Name the kind, which the items of a LIST leave out, and drop what is never read."""
    obj.setdefault("kind", kind)
    obj.setdefault("apiVersion", entry.api_version)
    return without_unread(obj)


def without_unread(obj: Object) -> Object:
    """The object without what no decision reads: half of a small one's size, nearly all of a node's."""
    meta = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    read = {part: _picked(obj.get(part) or {}, fields) for part, fields in _READ_OF_NODES.items()}
    return {**obj, "metadata": meta, **(read if obj["kind"] == "Node" else {})}


_READ_OF_NODES: Final = {"spec": ("taints", "unschedulable"), "status": ("allocatable", "conditions")}


def _picked(part: Object, fields: tuple[str, ...]) -> Object:
    return {name: part[name] for name in fields if name in part}


def _takeovers(error: Conflict) -> tuple[Takeover, ...]:
    """The foreign fields of a refused apply; the message names the manager in quotes."""
    conflicts = [cause for cause in error.causes if cause.reason == "FieldManagerConflict"]
    return tuple(Takeover(_quoted(cause.message), cause.field) for cause in conflicts)


def _quoted(message: str) -> str:
    parts = message.split('"')
    return parts[1] if len(parts) > 2 else message
