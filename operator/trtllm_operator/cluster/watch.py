"""The informer: Kopf's watch streams, and nothing else of Kopf.

Its handlers only fill the store and ask for a look, so they cannot fail, never write and leave no annotation,
finalizer or event behind. This is the only file that knows Kopf.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Final, cast

import aiohttp
import kopf
from kubernetes.aio.client import Configuration

from ..api.names import MANAGER
from ..reconcile.resync import Enqueue
from ..reconcile.store import Object, Store, key_of, uid_of, version_of
from .client import without_unread
from .connection import CONNECT_TIMEOUT, REQUEST_TIMEOUT, USER_AGENT, Authorization, api_client
from .kinds import KINDS

SERVER_TIMEOUT: Final = 120
"""Seconds after which the API server ends a stream and a new one is opened.

Kopf shows no bookmarks, so an answered request is the proof that a stream lives; `SILENCE` needs a few of them."""
CLIENT_TIMEOUT: Final = SERVER_TIMEOUT + 10
"""Seconds; for a server that does not keep to it."""
SILENCE: Final = 180.0
"""Seconds without a proof of life after which a stream counts as dead. Kopf reopens a silent one after 70 s."""
RECONNECT: Final = (1.0, 1.0, 2.0, 3.0, *[5.0] * 20)
"""Seconds between tries when the API server is away: at most five after it is back, for two minutes."""
PAGE: Final = 500


class Watch:
    """Watches `kinds`, in `namespaces` or (none given) everywhere. `clock` gives monotonic seconds."""

    def __init__(
        self,
        configuration: Configuration,
        store: Store,
        enqueue: Enqueue,
        *,
        kinds: Collection[str],
        namespaces: Collection[str],
        clock: Callable[[], float],
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._enqueue = enqueue
        self._kinds = kinds
        self._namespaces = namespaces
        self._clock = clock
        self._stop = asyncio.Event()
        self._alive: dict[str, float] = {}

    async def run(self, started: Callable[[], None]) -> None:
        """Watch until `stop()`; raises if Kopf gives up. `started` is called once its signal handlers are in place.

        The kinds must be served already. Kopf cancels, at its end, every task that was created after its start.
        """
        logging.getLogger("kopf").setLevel(logging.WARNING)
        existing = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=self._settings(),
            standalone=True,
            # Kopf's default asks for the name of the user, and in the image the user has none.
            identity=cast(Any, MANAGER),
            clusterwide=not self._namespaces,
            namespaces=list(self._namespaces),
            stop_flag=self._stop,
        )
        started()
        await kopf.run_tasks(tasks, ignored=existing)

    def stop(self) -> None:
        self._stop.set()

    @property
    def silence(self) -> float:
        """Seconds since the stream that has been silent for longest gave a sign of life; 0 before the first."""
        return max((self._clock() - at for at in self._alive.values()), default=0.0)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for name in self._kinds:
            kind = KINDS[name]
            kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(self._saw)
        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        # The kinds are fixed and served: no right to read definitions and namespaces is needed.
        settings.scanning.disabled = True
        settings.process.ultimate_exiting_timeout = None
        settings.networking.request_timeout = REQUEST_TIMEOUT
        settings.networking.connect_timeout = CONNECT_TIMEOUT
        settings.networking.error_backoffs = RECONNECT
        settings.watching.server_timeout = SERVER_TIMEOUT
        settings.watching.client_timeout = CLIENT_TIMEOUT
        settings.watching.chunk_size = PAGE
        for name in self._kinds:
            kind = KINDS[name]
            if kind.selector is not None:
                settings.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.selector
        return settings

    async def _login(self, **_: object) -> kopf.AiohttpSession:
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=api_client(self._configuration).rest_client.ssl_context),
            headers={"User-Agent": USER_AGENT},
            middlewares=[Authorization(self._configuration), self._note_answer],
            proxy=self._configuration.proxy,
            trust_env=True,
            read_bufsize=2**21,  # a line holds a whole object
        )
        return kopf.AiohttpSession(server=self._configuration.host, aiohttp_session=session)

    async def _note_answer(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        response = await handler(request)
        if response.status == 200 and request.url.query.get("watch"):
            self._alive[request.url.path] = self._clock()
        return response

    async def _saw(self, event: kopf.RawEvent, **_: object) -> None:
        obj: Object = without_unread(dict(event["object"]))
        key = key_of(obj)
        before = self._store.get(key)
        if event["type"] == "DELETED":
            changed = self._store.delete(key, uid_of(obj), version_of(obj))
        else:
            changed = self._store.put(obj)
        if changed:
            self._enqueue(obj)
            if before is not None:
                # An owner or a label that the object has lost concerns somebody too.
                self._enqueue(before)
