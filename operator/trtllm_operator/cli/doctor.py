"""`llmd doctor`: whether a cluster has what the operator and its pods need, and what to do where it has not."""

from __future__ import annotations

import asyncio
import base64
import enum
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509

from .. import __version__
from ..api.crd import crds
from ..api.names import MANAGER, VERSION
from ..api.nodes import NodeFacts
from ..api.quantity import amount
from ..api.views import timestamp
from ..cluster.errors import Forbidden
from ..reconcile.store import Object
from ..resolve.defaults import Defaults
from .amounts import count
from .cluster import UserClient, with_cluster
from .inputs import read_defaults
from .output import Screen, Style

HOOK: Final = "validate.inference.trtllm-operator.dev"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
QUIET: Final = timedelta(minutes=2)
"""After which a Lease that nobody has renewed is abandoned: renewed every 2 s, and clocks differ."""
FEW: Final = 3
"""Names or fields that are listed before the rest is counted."""


class Level(enum.Enum):
    """How a check ended."""

    GOOD = "✓", Style.GOOD
    DOUBTFUL = "!", Style.DOUBTFUL
    """Works, but not everything does."""
    BAD = "✗", Style.BAD
    UNKNOWN = "?", Style.FAINT
    """The user may not look."""

    def __init__(self, mark: str, style: Style) -> None:
        self.mark = mark
        self.style = style


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    level: Level
    text: str
    remedy: str = ""


Findings = Sequence[Finding]
Check = Callable[[UserClient, Defaults, datetime], Awaitable[Findings]]


def doctor(*, config: str | None, kubeconfig: str | None) -> int:
    """1 if something is wrong. Raises `BadInput`."""
    defaults, screen = read_defaults(config), Screen(sys.stdout)
    found = with_cluster(kubeconfig, lambda client: examine(client, defaults, datetime.now(UTC)))
    for what, findings in found:
        for finding in findings:
            mark = screen.letters(finding.level.mark)
            screen.line(
                f"{mark} {what}: {finding.text}", indent=4, shown=(mark, screen.style(mark, finding.level.style))
            )
            if finding.remedy:
                screen.line(f"    {finding.remedy}", indent=4)
    return 1 if any(finding.level is Level.BAD for _, findings in found for finding in findings) else 0


async def examine(client: UserClient, defaults: Defaults, now: datetime) -> list[tuple[str, Findings]]:
    """Every check with what it found. Raises `ClusterError` when the cluster does not answer at all."""

    async def one(check: Check) -> Findings:
        try:
            return await check(client, defaults, now)
        except Forbidden as error:
            return [Finding(level=Level.UNKNOWN, text=f"you may not look: {error.message}")]

    found = await asyncio.gather(*(one(check) for check in CHECKS.values()))
    return list(zip(CHECKS, found, strict=True))


async def definitions(client: UserClient, _: Defaults, __: datetime) -> Findings:
    """Our two kinds, with the fields of this version."""
    findings = []
    for wanted in crds().values():
        name = wanted["metadata"]["name"]
        live = await client.get("CustomResourceDefinition", "", name)
        if live is None:
            remedy = "install the chart, or: kubectl apply --server-side -f crds/"
            findings.append(Finding(level=Level.BAD, text=f"{name} is missing", remedy=remedy))
            continue
        lacking = sorted(set(fields(_schema(wanted))) - set(fields(_schema(live))))
        if lacking:
            remedy = "kubectl apply --server-side --force-conflicts -f crds/ (helm upgrade does it too)"
            text = f"{name} is of another version: it lacks {_some(lacking)}"
            findings.append(Finding(level=Level.BAD, text=text, remedy=remedy))
        else:
            findings.append(Finding(level=Level.GOOD, text=f"{name} has every field of {VERSION}"))
    return findings


async def operator(client: UserClient, _: Defaults, now: datetime) -> Findings:
    """Its Deployment runs, and one of its processes holds the Lease."""
    deployments = (await client.list("OperatorDeployment")).items
    if not deployments:
        remedy = "install it: helm install trtllm-operator charts/trtllm-operator -n trtllm-operator-system"
        text = "no Deployment with its labels, so nothing is reconciled unless it runs outside of the cluster"
        return [Finding(level=Level.BAD, text=text, remedy=remedy), *await _lease(client, None, now)]
    findings: list[Finding] = []
    for deployment in deployments:
        findings.append(_runs(deployment))
        findings += await _lease(client, deployment["metadata"]["namespace"], now)
    return findings


def _runs(deployment: Object) -> Finding:
    meta = deployment["metadata"]
    where, version = f"{meta['namespace']}/{meta['name']}", (meta.get("labels") or {}).get("app.kubernetes.io/version")
    ready = (deployment.get("status") or {}).get("readyReplicas", 0)
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    if not ready:
        remedy = (
            f"kubectl -n {meta['namespace']} describe pods; kubectl -n {meta['namespace']} logs deploy/{meta['name']}"
        )
        return Finding(level=Level.BAD, text=f"{where}: none of {count(wanted, 'replica')} is ready", remedy=remedy)
    text = f"{where}: {ready} of {count(wanted, 'replica')} ready"
    if version not in (None, __version__):
        remedy = "use the llmd of the operator's version: what is checked and planned here may differ"
        return Finding(level=Level.DOUBTFUL, text=f"{text}, version {version}; llmd is {__version__}", remedy=remedy)
    return Finding(level=Level.GOOD, text=text)


async def _lease(client: UserClient, namespace: str | None, now: datetime) -> Findings:
    leases = (await client.list("Lease", namespace)).items
    if not leases and namespace is None:
        return []
    if not leases:
        remedy = f"kubectl -n {namespace} logs -l app.kubernetes.io/name={MANAGER}"
        return [Finding(level=Level.BAD, text="no Lease: no process has ever led", remedy=remedy)]
    return [_leads(lease, now) for lease in leases]


def _leads(lease: Object, now: datetime) -> Finding:
    spec, meta = lease.get("spec") or {}, lease["metadata"]
    holder, renewed = spec.get("holderIdentity"), timestamp(spec.get("renewTime"))
    remedy = f"kubectl -n {meta['namespace']} logs -l app.kubernetes.io/name={MANAGER}"
    if not holder:
        return Finding(level=Level.BAD, text="nobody leads: the Lease is free", remedy=remedy)
    if renewed is None or now - renewed > QUIET:
        text = f"{holder} led last, and has not renewed its Lease since {spec.get('renewTime')}"
        return Finding(level=Level.BAD, text=text, remedy=remedy)
    return Finding(level=Level.GOOD, text=f"{holder} leads")


async def webhook(client: UserClient, _: Defaults, now: datetime) -> Findings:
    """The API server knows the certificate that the operator answers with."""
    all_hooks = (hook for c in (await client.list("ValidatingWebhookConfiguration")).items for hook in _hooks(c))
    hooks = [hook for hook in all_hooks if hook.get("name") == HOOK]
    if not hooks:
        text = "not installed: what is wrong with a spec is told by status alone, not by kubectl apply"
        return [
            Finding(level=Level.DOUBTFUL, text=text, remedy="webhook.enabled of the chart, without watchNamespaces")
        ]
    return [_trusted(hook, now) for hook in hooks]


def _hooks(configuration: Object) -> Sequence[Mapping[str, Any]]:
    return configuration.get("webhooks") or ()


def _trusted(hook: Mapping[str, Any], now: datetime) -> Finding:
    bundle = (hook.get("clientConfig") or {}).get("caBundle")
    remedy = "the operator writes it when it leads; look at its log"
    if not bundle:
        return Finding(level=Level.BAD, text="the API server has no certificate of it", remedy=remedy)
    try:
        certificates = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except ValueError:
        return Finding(level=Level.BAD, text="its certificate cannot be read", remedy=remedy)
    end = max(certificate.not_valid_after_utc for certificate in certificates)
    if end <= now:
        return Finding(level=Level.BAD, text=f"its certificate ended at {end:%Y-%m-%d %H:%MZ}", remedy=remedy)
    return Finding(level=Level.GOOD, text=f"trusted until {end:%Y-%m-%d}")


async def nodes(client: UserClient, defaults: Defaults, _: datetime) -> Findings:
    """GPUs, labels that tell their kind, and room for a build."""
    found = (await client.list("Node")).items
    facts = [NodeFacts.of(node, defaults.gpu_resource) for node in found]
    with_gpus = [node for node in facts if node.gpus]
    return [*_gpus(facts, with_gpus, defaults), _room(found, defaults)]


def _gpus(facts: Sequence[NodeFacts], with_gpus: Sequence[NodeFacts], defaults: Defaults) -> Iterator[Finding]:
    if not with_gpus:
        text = f"none of {count(len(facts), 'node')} offers {defaults.gpu_resource}: only serving.device cpu can run"
        remedy = "add nodes with GPUs and the device plugin (NVIDIA GPU Operator); or name another gpuResource"
        yield Finding(level=Level.DOUBTFUL, text=text, remedy=remedy)
        return
    usable = [node for node in with_gpus if node.usable]
    kinds = sorted({node.gpu_product or "unknown" for node in usable})
    text = f"{count(sum(n.gpus for n in usable), 'GPU')} on {count(len(usable), 'node')} ({', '.join(kinds)})"
    if not usable:
        names = _some([node.name for node in with_gpus])
        remedy = "kubectl describe node; kubectl uncordon"
        yield Finding(level=Level.BAD, text=f"no node with GPUs takes pods: {names}", remedy=remedy)
    else:
        yield Finding(level=Level.GOOD, text=text)
    bare = [node.name for node in usable if node.gpu_product is None or node.compute_capability is None]
    if bare:
        text = f"{_some(bare)}: no labels say which GPUs these are, so engines cannot be matched to them"
        remedy = "install GPU feature discovery (part of the NVIDIA GPU Operator)"
        yield Finding(level=Level.DOUBTFUL, text=text, remedy=remedy)


def _room(found: Sequence[Object], defaults: Defaults) -> Finding:
    usable = [node for node in found if NodeFacts.of(node).usable]
    wanted = {"cpu": defaults.build_cpu, "memory": defaults.build_memory}
    offers = [(node.get("status") or {}).get("allocatable") or {} for node in usable]
    large = [o for o in offers if all(has(o, name, size) for name, size in wanted.items())]
    text = f"{defaults.build_cpu} CPU and {defaults.build_memory} of memory, the least that a build pod requests"
    if large:
        return Finding(level=Level.GOOD, text=f"{count(len(large), 'node')} can have {text}")
    remedy = "add a larger node, or lower buildCpu or buildMemory of the operator, or engine.resources of a spec"
    return Finding(level=Level.BAD, text=f"no node that takes pods has {text}", remedy=remedy)


async def storage(client: UserClient, defaults: Defaults, _: datetime) -> Findings:
    """The class of engine claims, and of the cache of hub models."""
    classes = (await client.list("StorageClass")).items
    there = sorted(item["metadata"]["name"] for item in classes)
    default = [c for c in classes if (c["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"]
    known = f"there are {', '.join(there)}" if there else "there are none"
    findings = []
    for setting, name in (
        ("storageClass", defaults.storage_class),
        ("cacheStorageClass", defaults.cache_storage_class),
    ):
        if name is not None and name not in there:
            text, remedy = (
                f"{setting} {name} does not exist: {known}",
                f"name one that does in {setting} of the operator",
            )
            findings.append(Finding(level=Level.BAD, text=text, remedy=remedy))
    if not default and None in (defaults.storage_class, defaults.cache_storage_class):
        text = f"no class is the default: {known}; claims of engines or of the cache stay unbound"
        remedy = f"annotate one with {DEFAULT_CLASS}=true, or set storageClass and cacheStorageClass of the operator"
        findings.append(Finding(level=Level.BAD, text=text, remedy=remedy))
    used = sorted({name for name in (defaults.storage_class, defaults.cache_storage_class) if name is not None})
    used = used or [item["metadata"]["name"] for item in default]
    return findings or [Finding(level=Level.GOOD, text=f"claims use {', '.join(used)}")]


CHECKS: Final[Mapping[str, Check]] = {
    "definitions": definitions,
    "operator": operator,
    "webhook": webhook,
    "nodes": nodes,
    "storage": storage,
}


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of all fields."""
    for name, inner in (schema.get("properties") or {}).items():
        place = f"{path}.{name}" if path else name
        yield place
        yield from fields(inner, place)
        items = inner.get("items")
        if isinstance(items, Mapping):
            yield from fields(items, f"{place}[]")


def has(offer: Mapping[str, Any], name: str, size: str) -> bool:
    """Whether a node offers at least this much; what is no quantity is nothing."""
    return (amount(offer.get(name)) or 0) >= (amount(size) or 0)


def _schema(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    for version in definition["spec"]["versions"]:
        if version["name"] == VERSION:
            schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
            return schema
    return {}


def _some(names: Sequence[str]) -> str:
    more = len(names) - FEW
    return ", ".join(names[:FEW]) + (f" and {more} more" if more > 0 else "")
