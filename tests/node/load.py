"""A steady load of requests through a Service, as clients inside the cluster make it: every answer counts."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from tests.cluster.waiting import wait_until
from tests.node.world import Namespace

CLIENTS: Final = 2
PAUSE: Final = 0.05
"""Seconds between the requests of one client: a load that two cores bear beside everything else."""
BODY_TOKENS: Final = 4


@dataclass(frozen=True, slots=True)
class Lost:
    """A request that was not answered with 200."""

    at: float
    """Seconds after the load began."""
    why: str


class Load:
    """Clients that ask one request after another, each by a connection of its own, until the `with` block ends."""

    def __init__(self, namespace: Namespace, service: str) -> None:
        (found,) = [s for s in namespace.list("service") if s["metadata"]["name"] == service]
        self._address = (str(found["spec"]["clusterIP"]), int(found["spec"]["ports"][0]["port"]))
        self._body = json.dumps({"model": service, "prompt": "the engine", "max_tokens": BODY_TOKENS})
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(CLIENTS)]
        self._began = time.monotonic()
        self.answered = 0
        self.lost: list[Lost] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.goes_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self, requests: int = 20) -> None:
        """Returns once so many more requests were answered."""
        wanted = self.answered + requests
        wait_until(lambda: self.answered >= wanted, f"{requests} more answers; lost: {self.lost[:3]}", 60)

    def _ask(self) -> None:
        while not self._stop.wait(PAUSE):
            at = time.monotonic() - self._began
            connection = http.client.HTTPConnection(*self._address, timeout=60)
            try:
                connection.request("POST", "/v1/completions", self._body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
                if answer.status == 200:
                    self.answered += 1
                else:
                    self.lost.append(Lost(at, f"{answer.status}: {text[:200]!r}"))
            except OSError as error:
                self.lost.append(Lost(at, repr(error)))
            except http.client.HTTPException as error:
                self.lost.append(Lost(at, repr(error)))
            finally:
                connection.close()
