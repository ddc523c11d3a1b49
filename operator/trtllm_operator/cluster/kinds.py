"""Every kind that the operator touches, and what it may do with it.

The client refuses whatever is not written here, so this table is the whole of the rights that the operator needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..api.names import API_VERSION, SELECTOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind at the API server.

    `verbs` are those of RBAC; server-side apply needs `create` beside `patch`, because it also creates.
    """

    api_version: str
    plural: str
    verbs: frozenset[str]
    namespaced: bool = True
    subresources: Mapping[str, frozenset[str]] = field(default_factory=dict)
    watched: bool = False
    """Its state drives decisions: seen at once."""
    stored: bool = False
    """In the store: listed by every resync, between them only if watched."""
    at_home: bool = False
    """Touched in the operator's own namespace, or there is one that is ours: granted there, and by name."""
    selector: str | None = None
    """Label selector, applied at the API server, of the objects that concern us; None: all."""
    field_selector: str | None = None
    """The same by fields, of a LIST."""

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path below the API server's address; without a namespace that of all namespaces."""
        parts = ["/apis" if self.group else "/api", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *(part for part in (name, subresource) if part)])


_READ: Final = frozenset({"get", "list", "watch"})
_PATCH: Final = frozenset({"patch"})


def _watched_child(api_version: str, plural: str, *verbs: str) -> Kind:
    return Kind(
        api_version=api_version,
        plural=plural,
        verbs=_READ | set(verbs),
        watched=True,
        stored=True,
        selector=SELECTOR,
    )


def _listed_child(api_version: str, plural: str, *verbs: str) -> Kind:
    """Nothing is decided on its state; a resync notices when somebody changed it."""
    return Kind(
        api_version=api_version,
        plural=plural,
        verbs=frozenset({"get", "list", *verbs}),
        stored=True,
        selector=SELECTOR,
    )


KINDS: Final[Mapping[str, Kind]] = {
    "LLMDeployment": Kind(
        api_version=API_VERSION,
        plural="llmdeployments",
        verbs=_READ,
        subresources={"status": _PATCH},
        watched=True,
        stored=True,
    ),
    "LLMEngine": Kind(
        api_version=API_VERSION,
        plural="llmengines",
        verbs=_READ | {"create", "delete"},
        subresources={"status": _PATCH},
        watched=True,
        stored=True,
    ),
    "Job": _watched_child("batch/v1", "jobs", "create", "delete"),
    "StatefulSet": _watched_child("apps/v1", "statefulsets", "create", "patch", "delete"),
    "Pod": Kind(
        api_version="v1",
        plural="pods",
        # Deleted is only what is on a lost node; everything else goes with its controller.
        verbs=_READ | {"delete"},
        subresources={"log": frozenset({"get"})},
        watched=True,
        stored=True,
        selector=SELECTOR,
    ),
    # Patched is only the annotation that says since when nobody needs a claim.
    "PersistentVolumeClaim": _watched_child("v1", "persistentvolumeclaims", "create", "patch", "delete"),
    "Service": _watched_child("v1", "services", "create", "patch"),
    "ControllerRevision": _listed_child("apps/v1", "controllerrevisions", "create", "delete"),
    "PodDisruptionBudget": _listed_child("policy/v1", "poddisruptionbudgets", "create", "patch"),
    # Only where the operator serves all namespaces: no Role can grant what belongs to none.
    "Node": Kind(api_version="v1", plural="nodes", verbs=_READ, namespaced=False, watched=True, stored=True),
    # Everybody's pods that hold something on a node: listed while a rollout asks for free GPUs, never kept.
    "PlacedPod": Kind(
        api_version="v1",
        plural="pods",
        verbs=frozenset({"list"}),
        field_selector="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
    ),
    "Lease": Kind(
        api_version="coordination.k8s.io/v1",
        plural="leases",
        verbs=frozenset({"get", "create", "update"}),
        at_home=True,
    ),
    # Of the admission webhook: its certificate, and the API server's knowledge of it.
    "Secret": Kind(api_version="v1", plural="secrets", verbs=frozenset({"get", "create", "update"}), at_home=True),
    "ValidatingWebhookConfiguration": Kind(
        api_version="admissionregistration.k8s.io/v1",
        plural="validatingwebhookconfigurations",
        verbs=frozenset({"get", "update"}),
        namespaced=False,
        at_home=True,
    ),
    "Event": Kind(api_version="events.k8s.io/v1", plural="events", verbs=frozenset({"create"})),
}
