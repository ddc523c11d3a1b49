"""How the commands that need a cluster reach it, and as whom: the user of a kubeconfig, or of the pod they run in."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, list_kube_config_contexts

from ..cluster.client import Client
from ..cluster.connection import CONNECT_TIMEOUT, configure
from ..cluster.errors import ClusterError, Forbidden, Unreachable, error_of
from ..reconcile.store import Object
from .failure import BadInput
from .rights import USER_KINDS

T = TypeVar("T")

MANAGER: Final = "llmd"
"""Field manager of what the commands write: an edit of a person, not of the operator."""
POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
LONGEST_LINE: Final = 2**20
"""Bytes of a log line; what is longer ends the following of that log."""


class UserClient(Client):
    """The verbs that a person needs beside the operator's."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration, kinds=USER_KINDS)

    async def patch(self, kind: str, namespace: str, name: str, changes: Mapping[str, Any]) -> Object:
        """Merge `changes` into the object; null removes a field. Without a version in it, it may be sent twice."""
        answer = await self._send(
            "patch",
            kind,
            namespace,
            name,
            query={"fieldManager": MANAGER},
            body=changes,
            content_type="application/merge-patch+json",
        )
        return self._object(answer, kind)

    async def managers(self, kind: str, namespace: str, name: str) -> tuple[str, ...]:
        """Who has written the object's fields, as they call themselves."""
        answer = await self._send("get", kind, namespace, name)
        fields = json.loads(answer.body)["metadata"].get("managedFields") or ()
        return tuple(dict.fromkeys(entry.get("manager", "") for entry in fields))

    async def log_lines(
        self, namespace: str, pod: str, *, follow: bool, previous: bool, tail: int | None
    ) -> AsyncIterator[str]:
        """The lines of a pod's only container, to its end with `follow`. Raises `ClusterError`."""
        url = USER_KINDS["Pod"].path(namespace, pod, "log")
        query = {
            "follow": "true" if follow else "",
            "previous": "true" if previous else "",
            "tailLines": "" if tail is None else str(tail),
        }
        request = await self._api.param_serialize(
            "GET",
            url,
            query_params=[(key, value) for key, value in query.items() if value],
            header_params={"Accept": "*/*"},
            auth_settings=["BearerToken"],
        )
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT)
        try:
            answer = (await self._api.call_api(*request, _request_timeout=timeout)).response
            if answer.status >= 300:
                raise error_of(f"get {url}", answer.status, await answer.read())
            async for line in lines_of(answer.content.iter_any()):
                yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"get {url}: {error or type(error).__name__}") from error


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Whole lines out of pieces of any size; one that never ends is cut into parts."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def with_cluster(kubeconfig: str | None, work: Callable[[UserClient], Awaitable[T]]) -> T:
    """What `work` returns. Raises `BadInput` if there is no way to a cluster, or it refuses."""
    try:
        return asyncio.run(_connected(kubeconfig, work))
    except ConfigException as error:
        raise BadInput(f"no way to a cluster: {error}; set --kubeconfig or KUBECONFIG") from error
    except Forbidden as error:
        raise BadInput(f"the cluster does not let you: {error}") from error
    except ClusterError as error:
        raise BadInput(f"the cluster does not answer as it should: {error}") from error


async def _connected(kubeconfig: str | None, work: Callable[[UserClient], Awaitable[T]]) -> T:
    client = UserClient(await configure(kubeconfig))
    try:
        return await work(client)
    finally:
        await client.close()


def namespace_of(given: str | None, kubeconfig: str | None) -> str:
    """As kubectl chooses it: what was said, the context's, that of the pod, `default`."""
    chosen = kubeconfig or os.environ.get("KUBECONFIG")
    if given is not None:
        return given
    if chosen is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return POD_NAMESPACE.read_text().strip() if POD_NAMESPACE.exists() else "default"
    try:
        _, current = list_kube_config_contexts(chosen)  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise BadInput(f"no way to a cluster: {error}; set --kubeconfig or KUBECONFIG") from error
    namespace: str = (current.get("context") or {}).get("namespace") or "default"
    return namespace
