"""Rules about what Kubernetes would refuse later, in the pods and claims that are made of a spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ...api.deployment import LLMDeploymentSpec
from ...api.pods import Resources, Toleration
from ...api.problems import Problem
from ...api.quantity import amount
from .. import projection
from .case import Case
from .rule import Finding, Outcome, Rule, Stage, invalid, rule

NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""The name in a key, and the value of a label."""
PREFIX: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
KEY_FORM: Final = "a key is a name of at most 63 letters, digits, - _ . that begins and ends with a letter or digit; "
KEY_HINT: Final = f"{KEY_FORM}before it may stand a domain and a slash, as in example.com/team"
VALUE_HINT: Final = "use letters, digits, - _ . only, with a letter or digit at the beginning and the end"


@rule(
    "OP-6",
    Stage.SPEC,
    Outcome.REFUSES,
    "A request is not above the limit of the same resource.",
    ["serving.resources", "engine.resources"],
)
def requests_within_limits(case: Case) -> Iterator[Finding]:
    yield from _above(projection.options(case.spec).resources, f"{projection.options_path(case.spec)}.resources")
    if isinstance(case.spec, LLMDeploymentSpec):
        yield from _above(case.spec.serving.resources, "spec.serving.resources")


@rule(
    "OP-7",
    Stage.SPEC,
    Outcome.REFUSES,
    "A toleration is one that Kubernetes takes.",
    ["scheduling.tolerations"],
)
def tolerations_are_possible(case: Case) -> Iterator[Finding]:
    for index, toleration in enumerate(case.spec.scheduling.tolerations):
        yield from _toleration(toleration, f"spec.scheduling.tolerations[{index}]")


@rule(
    "OP-8",
    Stage.SPEC,
    Outcome.REFUSES,
    "Keys of labels and annotations, and values of labels, have the form that Kubernetes asks for.",
    ["podTemplate.labels", "podTemplate.annotations", "scheduling.nodeSelector"],
)
def labels_have_their_form(case: Case) -> Iterator[Finding]:
    yield from _labels(case.spec.scheduling.node_selector, "spec.scheduling.nodeSelector")
    if isinstance(case.spec, LLMDeploymentSpec):
        template = case.spec.pod_template
        yield from _labels(template.labels, "spec.podTemplate.labels")
        yield from _keys(template.annotations, "spec.podTemplate.annotations")


@rule("OP-9", Stage.SPEC, Outcome.REFUSES, "The claim of an engine has a size.", ["engine.storage.size"])
def storage_has_a_size(case: Case) -> Iterator[Finding]:
    size = projection.options(case.spec).storage.size
    if size is not None and amount(size) == 0:
        yield invalid(
            f"{projection.options_path(case.spec)}.storage.size",
            f"{size} is not allowed: a claim has room for something",
            "remove it, and the size follows from the model, or say for example 20Gi",
        )


def _above(resources: Resources, where: str) -> Iterator[Problem]:
    for name, request in resources.requests.items():
        limit = resources.limits.get(name)
        asked, most = amount(request), amount(limit)
        if asked is not None and most is not None and asked > most:
            yield invalid(
                f"{where}.requests[{name}]",
                f"{request} is above {where}.limits[{name}], which is {limit}",
                "lower the request, or raise the limit",
            )


def _toleration(toleration: Toleration, where: str) -> Iterator[Problem]:
    exists = toleration.operator == "Exists"
    if exists and toleration.value:
        yield invalid(
            f"{where}.value",
            f"{toleration.value} is not possible with operator Exists, which tolerates every value",
            "remove it, or change operator to Equal",
        )
    if not toleration.key and not exists:
        yield invalid(
            f"{where}.key",
            "is required with operator Equal, the default",
            "name the taint's key, or set operator to Exists, which without a key tolerates every taint",
        )
    if toleration.key and not _is_key(toleration.key):
        yield invalid(f"{where}.key", f"{toleration.key} is not the key of a taint", KEY_HINT)
    if toleration.value and not exists and not NAME.fullmatch(toleration.value):
        yield invalid(f"{where}.value", f"{toleration.value} is not the value of a taint", VALUE_HINT)
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        yield invalid(
            f"{where}.tolerationSeconds",
            f"{toleration.toleration_seconds} is possible with effect NoExecute only",
            "remove it, or set effect to NoExecute",
        )


def _labels(labels: Mapping[str, str], where: str) -> Iterator[Problem]:
    yield from _keys(labels, where)
    for key, value in labels.items():
        if value and not NAME.fullmatch(value):
            yield invalid(f"{where}[{key}]", f"{value} is not the value of a label", VALUE_HINT)


def _keys(entries: Mapping[str, str], where: str) -> Iterator[Problem]:
    for key in entries:
        if not _is_key(key):
            yield invalid(f"{where}[{key}]", "is not a key that Kubernetes takes", KEY_HINT)


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return NAME.fullmatch(name) is not None and (not slash or PREFIX.fullmatch(prefix) is not None)


RULES: Final[tuple[Rule, ...]] = (
    requests_within_limits,
    tolerations_are_possible,
    labels_have_their_form,
    storage_has_a_size,
)
