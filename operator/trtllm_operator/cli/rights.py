"""Every kind that `llmd` touches at the API server, and what it may do with it: with the user's rights, not ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..api.names import API_VERSION, SELECTOR
from ..cluster.kinds import Kind

_LIST: Final = frozenset({"list"})
_LOOK: Final = frozenset({"get", "list"})


def _child(api_version: str, plural: str, verbs: frozenset[str], **subresources: frozenset[str]) -> Kind:
    return Kind(api_version=api_version, plural=plural, verbs=verbs, subresources=subresources, selector=SELECTOR)


def _shared(api_version: str, plural: str, verbs: frozenset[str] = _LIST) -> Kind:
    return Kind(api_version=api_version, plural=plural, verbs=verbs, namespaced=False)


USER_KINDS: Final[Mapping[str, Kind]] = {
    # What a person edits by a command, and starts anew after a failure.
    "LLMDeployment": Kind(api_version=API_VERSION, plural="llmdeployments", verbs=_LOOK | {"patch"}),
    "LLMEngine": Kind(api_version=API_VERSION, plural="llmengines", verbs=_LOOK | {"delete"}),
    "Job": _child("batch/v1", "jobs", _LIST | {"delete"}),
    # What is only looked at.
    "StatefulSet": _child("apps/v1", "statefulsets", _LIST),
    "Pod": _child("v1", "pods", _LIST, log=frozenset({"get"})),
    "ControllerRevision": _child("apps/v1", "controllerrevisions", _LIST),
    "Event": Kind(api_version="events.k8s.io/v1", plural="events", verbs=_LIST),
    "Node": _shared("v1", "nodes"),
    "StorageClass": _shared("storage.k8s.io/v1", "storageclasses"),
    "CustomResourceDefinition": _shared("apiextensions.k8s.io/v1", "customresourcedefinitions", frozenset({"get"})),
    "ValidatingWebhookConfiguration": _shared("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
    "Lease": Kind(
        api_version="coordination.k8s.io/v1",
        plural="leases",
        verbs=_LIST,
        field_selector="metadata.name=trtllm-operator",
    ),
    # The operator's own, by the labels of its chart.
    "OperatorDeployment": Kind(
        api_version="apps/v1",
        plural="deployments",
        verbs=_LIST,
        selector="app.kubernetes.io/name=trtllm-operator,app.kubernetes.io/component=operator",
    ),
}
