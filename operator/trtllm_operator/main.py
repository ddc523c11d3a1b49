"""The operator process: flags, wiring, signals."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import socket
import sys
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException

from . import __version__
from .api.names import MANAGER, ROLE_LABEL
from .cluster.admission import Admission
from .cluster.build_logs import follow_builds
from .cluster.client import Client, Takeover
from .cluster.connection import configure
from .cluster.controller import Controller
from .cluster.errors import ClusterError
from .cluster.events import Events
from .cluster.kinds import KINDS
from .cluster.leader import Leader, LeadershipLost
from .cluster.metrics import Metrics
from .cluster.milestone_metrics import Milestones
from .cluster.probes import Probes
from .cluster.state_metrics import StateCollector, census
from .cluster.watch import SILENCE, Watch
from .cluster.webhook_certificate import WebhookCertificate
from .reconcile.queue import Queue
from .reconcile.resync import Listing, resync, resync_forever
from .reconcile.store import Object, Store
from .reconcile.worker import run_workers
from .resolve.defaults import Defaults

logger = logging.getLogger(__name__)

GRACE: Final = 5.0
"""Seconds that the work in hand gets to finish after SIGTERM."""
DEFINITIONS_RETRY: Final = 2.0
"""Seconds between two looks whether our kinds are served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line and the environment say."""

    namespaces: tuple[str, ...] = ()
    """Watched namespaces; none: all."""
    config: Path | None = None
    kubeconfig: str | None = None
    probe_address: str = ":8080"
    lease_namespace: str = "default"
    webhook_address: str | None = None
    webhook_service: str = f"{MANAGER}-webhook"
    workers: int = 4
    log_level: str = "INFO"
    log_format: str = "plain"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; returns the exit code."""
    options = parse(arguments)
    _log(options)
    try:
        defaults = Defaults.load(yaml.safe_load(options.config.read_text()) if options.config else None)
    except (OSError, ValueError, yaml.YAMLError) as error:
        logger.error("--config %s: %s", options.config, error)
        return 2
    try:
        return asyncio.run(_connect_and_operate(options, defaults))
    except ConfigException as error:
        logger.error("no way to the API server: %s; set --kubeconfig or run in a pod with a service account", error)
        return 2


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Flags win over the environment."""
    env = os.environ
    parser = argparse.ArgumentParser(prog=MANAGER, description="Kubernetes operator for LLM inference on TensorRT.")
    parser.add_argument("--version", action="version", version=f"{MANAGER} {__version__}")
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help="a namespace to serve, repeatable; without it all (WATCH_NAMESPACES, comma-separated)",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML with the installation's defaults")
    parser.add_argument("--kubeconfig", metavar="FILE", help="by default KUBECONFIG, else the pod's service account")
    parser.add_argument("--probe-address", default=":8080", metavar="HOST:PORT", help="for /livez, /readyz, /metrics")
    parser.add_argument(
        "--lease-namespace",
        default=env.get("POD_NAMESPACE", "default"),
        metavar="NAME",
        help="where the leader's Lease lives (POD_NAMESPACE)",
    )
    parser.add_argument(
        "--webhook-address", metavar="HOST:PORT", help="serve the admission webhook here; without it there is none"
    )
    parser.add_argument(
        "--webhook-service",
        default=f"{MANAGER}-webhook",
        metavar="NAME",
        help="Service of the webhook in the lease's namespace; its Secret and configuration have the same name",
    )
    parser.add_argument("--workers", type=_positive, default=4, metavar="N", help="objects reconciled at once")
    parser.add_argument(
        "--log-level", default=env.get("LOG_LEVEL", "INFO").upper(), choices=["DEBUG", "INFO", "WARNING", "ERROR"]
    )
    parser.add_argument("--log-format", default=env.get("LOG_FORMAT", "plain"), choices=["plain", "json"])
    given = parser.parse_args(arguments)
    named = given.namespace or [name.strip() for name in env.get("WATCH_NAMESPACES", "").split(",") if name.strip()]
    return Options(
        namespaces=tuple(dict.fromkeys(named)),
        config=given.config,
        kubeconfig=given.kubeconfig,
        probe_address=given.probe_address,
        lease_namespace=given.lease_namespace,
        webhook_address=given.webhook_address,
        webhook_service=given.webhook_service,
        workers=given.workers,
        log_level=given.log_level,
        log_format=given.log_format,
    )


async def _connect_and_operate(options: Options, defaults: Defaults) -> int:
    return await Operator(options, await configure(options.kubeconfig), defaults).run()


class Operator:
    """All parts, wired; made inside the running event loop."""

    def __init__(self, options: Options, configuration: Configuration, defaults: Defaults) -> None:
        clock = asyncio.get_running_loop().time
        now = partial(datetime.now, UTC)
        identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._options = options
        self._configuration = configuration
        self._clock = clock
        self._metrics = Metrics(leads=lambda: self._leader.is_leader)
        self._store = Store(labels=[ROLE_LABEL])
        self._queue = Queue(clock=clock, random=random.random, observe=self._metrics.observe_wait)
        self._client = Client(configuration, metrics=self._metrics)
        self._leader = Leader(
            self._client,
            namespace=options.lease_namespace,
            name=MANAGER,
            identity=identity,
            clock=clock,
            now=now,
        )
        self._events = Events(self._client, instance=identity, clock=clock, now=now)
        self._client.may_write = lambda: self._leader.is_leader
        self._client.on_takeover = self._tell_takeover
        self._controller = Controller(
            store=self._store,
            client=self._client,
            events=self._events,
            milestones=Milestones(self._metrics),
            enqueue=self._enqueue,
            defaults=defaults,
            now=now,
        )
        self._certificate = WebhookCertificate(
            self._client,
            namespace=options.lease_namespace,
            service=options.webhook_service,
            now=now,
            is_leader=lambda: self._leader.is_leader,
        )
        self._admission = (
            Admission(options.webhook_address, certificate=self._certificate, defaults=defaults)
            if options.webhook_address
            else None
        )
        self._watch: Watch | None = None
        self._synced = asyncio.Event()
        self._stop = asyncio.Event()
        self._probes = Probes(options.probe_address, metrics=self._metrics, live=self._live, ready=self._ready)
        self._metrics.gauge("queue_ready", "Keys waiting for a worker.", lambda: self._queue.ready)
        self._metrics.gauge("queue_in_flight", "Keys in work.", lambda: self._queue.in_flight)
        self._metrics.gauge("queue_failing", "Keys whose last look failed.", lambda: self._queue.failing)
        self._metrics.gauge("objects", "Objects in the store.", lambda: len(self._store))
        take = partial(census, self._store, defaults.gpu_resource)
        self._metrics.collect(StateCollector(lambda: take(now()), clock=clock))

    async def run(self) -> int:
        """Stand by, lead, and stop on SIGTERM; returns the exit code."""
        self._take_signals()
        admission: list[asyncio.Task[None]] = []
        try:
            await self._probes.start()
            if self._admission is not None:
                await self._admission.start()
                admission.append(asyncio.create_task(self._certificate.keep(), name="webhook certificate"))
            if await self._unless_stopped(self._leader.acquire(), *admission):
                await self._lead(*admission)
            logger.info("stopped")
            return 0
        except LeadershipLost as error:
            logger.error("%s; exiting, so that nothing is written beside the new leader", error)
            return 1
        except Exception:
            logger.exception("exiting on an error that a restart may mend")
            return 1
        finally:
            for part in admission:
                part.cancel()
            await self._leader.release()
            if self._admission is not None:
                await self._admission.stop()
            await self._probes.stop()
            await self._client.close()

    async def _lead(self, *beside: asyncio.Task[None]) -> None:
        """Work until stopped. Raises what ended a part of us or of `beside`; each is meant to run for ever."""
        hold = asyncio.create_task(self._leader.hold(), name="lease")
        parts: list[asyncio.Task[None]] = [hold]
        try:
            if not await self._unless_stopped(self._await_definitions(), hold, *beside):
                return
            everywhere = not self._options.namespaces
            kinds = [name for name, kind in KINDS.items() if kind.stored and (everywhere or kind.namespaced)]
            watch = self._watch = Watch(
                self._configuration,
                self._store,
                self._enqueue,
                kinds=[kind for kind in kinds if KINDS[kind].watched],
                namespaces=self._options.namespaces,
                clock=self._clock,
            )
            once = partial(resync, kinds, self._list, self._store, self._enqueue)
            workers = asyncio.create_task(self._work(), name="workers")
            parts += [
                workers,
                asyncio.create_task(follow_builds(self._store, self._client, self._enqueue), name="build logs"),
                asyncio.create_task(
                    resync_forever(once, first=self._synced, random=random.random, expected=(ClusterError,)),
                    name="resync",
                ),
                # Last: at its end Kopf cancels every task that is younger than itself.
                asyncio.create_task(watch.run(started=self._take_signals), name="watch"),
            ]
            if not await self._unless_stopped(asyncio.Event().wait(), *parts, *beside):
                self._queue.close()
                await asyncio.wait([workers], timeout=GRACE)
                watch.stop()
                await asyncio.wait([parts[-1]], timeout=GRACE)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _work(self) -> None:
        # Before the first full listing a missing child may be one that was not read yet.
        await self._synced.wait()
        logger.info("synced: %d objects", len(self._store))
        await run_workers(
            self._queue,
            self._controller.reconcile,
            count=self._options.workers,
            clock=self._clock,
            expected=(ClusterError,),
            observe=self._metrics.observe_reconcile,
        )

    async def _unless_stopped(self, work: Coroutine[object, object, object], *parts: asyncio.Task[None]) -> bool:
        """Do `work`; False if we were told to stop before it was done. Raises what `work` or one of `parts` raises."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([task, stopped, *parts], return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                if part.done():
                    part.result()
                    raise RuntimeError(f"{part.get_name()} ended, which it must not")
            if self._stop.is_set():
                return False
            task.result()
            return True
        finally:
            task.cancel()
            stopped.cancel()

    async def _await_definitions(self) -> None:
        missing = ["LLMDeployment", "LLMEngine"]
        while True:
            try:
                missing = [kind for kind in missing if not await self._client.serves(kind)]
            except ClusterError as error:
                logger.warning("%s", error)
            if not missing:
                return
            logger.warning("waiting for the definition of %s; apply the folder crds/", " and ".join(missing))
            await asyncio.sleep(DEFINITIONS_RETRY)

    async def _list(self, kind: str) -> Listing:
        if not self._options.namespaces or not KINDS[kind].namespaced:
            return await self._client.list(kind)
        listings = [await self._client.list(kind, namespace) for namespace in self._options.namespaces]
        items = [item for listing in listings for item in listing.items]
        return Listing(items, min(listing.version for listing in listings))

    def _enqueue(self, obj: Object) -> None:
        for key in self._controller.owners(obj):
            self._queue.add(key)

    async def _tell_takeover(self, obj: Object, fields: Sequence[Takeover]) -> None:
        for manager in sorted({taken.manager for taken in fields}):
            names = ", ".join(taken.field for taken in fields if taken.manager == manager)
            message = f"{names} had been changed by {manager} and was set back; change the LLMDeployment instead"
            await self._events.emit(obj, "Warning", "FieldTakenBack", message)

    def _live(self) -> str | None:
        silence = self._watch.silence if self._watch is not None else 0.0
        return None if silence < SILENCE else f"a watch stream has been silent for {silence:.0f} s"

    def _ready(self) -> str | None:
        # A standby is ready: it has nothing to do, and a rollout of ourselves must not wait for it.
        return None if not self._leader.is_leader or self._synced.is_set() else "the first resync is not done"

    def _take_signals(self) -> None:
        """Ours, also after Kopf put its own handlers in place."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop.set)


class JsonLines(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _log(options: Options) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if options.log_format == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=options.log_level, handlers=[handler], force=True)
    # Libraries print bodies at DEBUG, and a body may hold what no log may show.
    for library in ("kopf", "kubernetes", "aiohttp", "asyncio"):
        logging.getLogger(library).setLevel(logging.WARNING)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return number
