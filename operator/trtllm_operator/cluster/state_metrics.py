"""How things stand in the cluster, read from the store whenever Prometheus asks: no call of the API, nothing kept.

Objects are read without parsing them: a scrape must not hold up the work when there are thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from trtllm_engine.contract import Toolchain

from ..api import names
from ..api.conditions import ConditionType
from ..api.deployment import LLMDeployment, Phase
from ..api.engine import EnginePhase, LLMEngine
from ..api.placement import PlacedPod
from ..api.views import PodView, timestamp
from ..reconcile.store import Key, Object, Store
from .metrics import PREFIX

QUEUED: Final = "queued"
RUNNING: Final = "running"
BUILD_STATES: Final = (QUEUED, RUNNING)

Sample = tuple[Sequence[str], float]
"""Values of the labels, and of the series."""

SERVING: Final = "serving"
IDLE: Final = "idle"
GPU_STATES: Final = (SERVING, IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """What there is at one moment."""

    deployments: Mapping[str, int]
    """By phase."""
    engines: Mapping[str, int]
    """By phase."""
    stalled: Mapping[tuple[str, str, str], int]
    """Objects that wait for a person, by kind, namespace and reason."""
    desired: Mapping[str, int]
    """Replicas that specs ask for, by namespace."""
    ready: Mapping[str, int]
    """Replicas that serve, by namespace."""
    engine_bytes: Mapping[str, int]
    """Of the engines that are ready, each content once, by toolchain."""
    builds: Mapping[tuple[str, str], int]
    """By state and toolchain. A build is queued until a pod of its Job runs."""
    longest_wait: float
    """Seconds that the oldest queued build has waited."""
    gpus: Mapping[str, int]
    """That our servers hold on nodes, by whether the pod is ready."""


def census(store: Store, gpu_resource: str, now: datetime) -> Census:
    """Count the store; `gpu_resource` is what stands for a GPU where a spec names no other."""
    deployments, engines = store.list(LLMDeployment.KIND), store.list(LLMEngine.KIND)
    building = [(engine, _build_began(store, engine)) for engine in engines if _builds(engine)]
    builds = Counter((RUNNING if began is None else QUEUED, _toolchain(engine)) for engine, began in building)
    waits = [(now - began).total_seconds() for _, began in building if began is not None]
    desired, ready = Counter[str](), Counter[str]()
    for deployment in deployments:
        namespace, spec = deployment["metadata"]["namespace"], deployment["spec"]
        desired[namespace] += 0 if spec.get("suspend") else _number(spec.get("replicas", 1))
        ready[namespace] += _number(_status(deployment).get("readyReplicas", 0))
    size = Counter[str]()
    for engine in engines:
        if _phase(engine) == EnginePhase.READY and not _status(engine).get("reference"):
            size[_toolchain(engine)] += _number(_status(engine).get("bytes", 0))
    return Census(
        deployments=Counter(_phase(obj) or Phase.PENDING for obj in deployments),
        engines=Counter(_phase(obj) or EnginePhase.PENDING for obj in engines),
        stalled=Counter(_stalled((*deployments, *engines))),
        desired=desired,
        ready=ready,
        engine_bytes=size,
        builds=builds,
        longest_wait=max(waits, default=0.0),
        gpus=_gpus(store, {gpu_resource, *_named_resources(deployments)}),
    )


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def _phase(obj: Object) -> str | None:
    return _status(obj).get("phase")


def _toolchain(engine: Object) -> str:
    return str(_status(engine).get("toolchain") or "")


def _number(value: object) -> int:
    """A stored spec may hold anything that an older schema let in."""
    return value if isinstance(value, int) else 0


def _stalled(objects: Iterable[Object]) -> Iterator[tuple[str, str, str]]:
    for obj in objects:
        for condition in _status(obj).get("conditions") or ():
            if condition["type"] == ConditionType.STALLED and condition["status"] == "True":
                yield obj["kind"], obj["metadata"]["namespace"], condition["reason"]


def _builds(engine: Object) -> bool:
    """Whether it builds itself, and does not wait for an elder with the same key."""
    return _phase(engine) == EnginePhase.BUILDING and not _status(engine).get("reference")


def _build_began(store: Store, engine: Object) -> datetime | None:
    """Since when its build has waited; None: it runs."""
    meta = engine["metadata"]
    job = store.get(Key("Job", meta["namespace"], names.build_job(_status(engine).get("key") or "")))
    if job is not None and any(pod["status"].get("phase") == "Running" for pod in _pods(store, job)):
        return None
    # Without a Job it waits for a slot; before its first look, since it was asked for.
    since = job["metadata"].get("creationTimestamp") if job is not None else _status(engine).get("queuedSince")
    return timestamp(since or meta.get("creationTimestamp"))


def _pods(store: Store, job: Object) -> list[Object]:
    return [pod for pod in store.owned(job["metadata"]["uid"]) if pod["kind"] == "Pod" and "status" in pod]


def _named_resources(deployments: Iterable[Object]) -> Iterator[str]:
    for deployment in deployments:
        if name := (deployment["spec"].get("gpu") or {}).get("resourceName"):
            yield name


def _gpus(store: Store, resources: Iterable[str]) -> Mapping[str, int]:
    held = Counter[str]()
    for pod in store.by_label("Pod", None, names.ROLE_LABEL, "server"):
        view = PodView.of(pod)
        if view.node is None or view.phase in ("Succeeded", "Failed"):
            continue
        amounts = PlacedPod.of(pod).amounts
        held[SERVING if view.ready else IDLE] += sum(amounts.get(name, 0) for name in resources)
    return held


class StateCollector(Collector):
    """The census as series, and the GPU seconds that are summed up from one look to the next.

    `take` counts; `clock` gives monotonic seconds.
    """

    def __init__(self, take: Callable[[], Census], *, clock: Callable[[], float]) -> None:
        self._take = take
        self._clock = clock
        self._looked_at = clock()
        self._idle_seconds = 0.0

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are known only from a census, and none must be taken when this is registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        taken, now = self._take(), self._clock()
        self._idle_seconds += taken.gpus.get(IDLE, 0) * (now - self._looked_at)
        self._looked_at = now
        toolchains = [toolchain.value for toolchain in Toolchain]
        yield _gauge("deployments", "LLMDeployments by phase.", ("phase",), _each(Phase, taken.deployments))
        yield _gauge("engines", "LLMEngines by phase.", ("phase",), _each(EnginePhase, taken.engines))
        yield _gauge(
            "stalled",
            "Objects that go on only when somebody acts, by kind, namespace and reason.",
            ("kind", "object_namespace", "reason"),
            taken.stalled.items(),
        )
        yield _gauge(
            "replicas_desired", "Replicas asked for, by namespace.", ("object_namespace",), _counted(taken.desired)
        )
        yield _gauge(
            "replicas_ready", "Replicas that serve, by namespace.", ("object_namespace",), _counted(taken.ready)
        )
        yield _gauge(
            "engine_bytes",
            "Size of the ready engines, by toolchain.",
            ("toolchain",),
            _each(toolchains, taken.engine_bytes),
        )
        yield _gauge(
            "builds",
            "Engine builds by state: queued (no pod runs yet) or running.",
            ("state", "toolchain"),
            [((s, t), taken.builds.get((s, t), 0)) for s in BUILD_STATES for t in toolchains],
        )
        yield _gauge(
            "build_longest_wait_seconds",
            "Seconds that the oldest queued build has waited; 0: none waits.",
            (),
            [((), taken.longest_wait)],
        )
        yield _gauge(
            "gpus", "GPUs that servers hold, by state: serving or idle.", ("state",), _each(GPU_STATES, taken.gpus)
        )
        waste = CounterMetricFamily(
            f"{PREFIX}_gpu_idle_seconds",
            "GPU seconds held by pods that do not serve yet, summed up whenever this is read.",
        )
        waste.add_metric((), self._idle_seconds)
        yield waste


def _each(words: Iterable[str], counted: Mapping[str, int]) -> Iterable[Sample]:
    """A series for each word, also where nothing was counted: an absent series is no 0."""
    return [((str(word),), counted.get(word, 0)) for word in words]


def _counted(counted: Mapping[str, int]) -> Iterable[Sample]:
    return [((label,), value) for label, value in counted.items()]


def _gauge(name: str, text: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for label_values, value in sorted(samples):
        family.add_metric(label_values, value)
    return family
