"""What Kubernetes would refuse in the pods and claims of a spec is refused at its field."""

from typing import Any

import pytest

from tests.builders import an_engine_spec, some_defaults
from tests.unit.resolve.cases import found, refused, silent
from trtllm_operator.resolve.examination import examine
from trtllm_operator.resolve.rules.case import Case


def tolerating(**toleration: Any) -> dict[str, Any]:
    return {"scheduling": {"tolerations": [{"key": "gpu", "operator": "Exists"}, toleration]}}


@pytest.mark.parametrize(("request_", "limit"), [("4Gi", "2Gi"), ("2Gi", "2G"), ("501m", "0.5"), (3, 2), ("1k", 999)])
def test_op_6_a_request_above_its_limit_is_refused(request_: Any, limit: Any) -> None:
    resources = {"requests": {"memory": request_}, "limits": {"memory": limit}}

    for section in ("serving", "engine"):
        problem = refused("OP-6", found({section: {"resources": resources}}))
        assert problem.path == f"spec.{section}.resources.requests[memory]"
        assert f"{request_} is above spec.{section}.resources.limits[memory], which is {limit}" in problem.message
    engine = examine(Case.of(an_engine_spec(resources=resources), some_defaults()))
    assert refused("OP-6", engine).path == "spec.resources.requests[memory]"


@pytest.mark.parametrize(("request_", "limit"), [("2Gi", "2048Mi"), ("500m", "0.5"), ("2G", "2Gi"), (1, "1")])
def test_op_6_a_request_up_to_its_limit_is_not_refused(request_: Any, limit: Any) -> None:
    resources = {"requests": {"cpu": request_, "memory": "1Gi"}, "limits": {"cpu": limit}}
    assert silent("OP-6", found({"serving": {"resources": resources}}))


@pytest.mark.parametrize(
    ("toleration", "field"),
    [
        ({"key": "gpu", "operator": "Exists", "value": "yes"}, "value"),
        ({"operator": "Equal", "value": "yes"}, "key"),
        ({"value": "yes"}, "key"),
        ({"key": "no spaces"}, "key"),
        ({"key": "gpu", "value": "not/a/value"}, "value"),
        ({"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}, "tolerationSeconds"),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}, "tolerationSeconds"),
    ],
)
def test_op_7_a_toleration_that_kubernetes_refuses_is_refused(toleration: dict[str, Any], field: str) -> None:
    assert refused("OP-7", found(tolerating(**toleration))).path == f"spec.scheduling.tolerations[1].{field}"


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "gpu", "operator": "Exists", "value": ""},
        {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    ],
)
def test_op_7_a_toleration_that_kubernetes_takes_is_not_refused(toleration: dict[str, Any]) -> None:
    assert silent("OP-7", found(tolerating(**toleration)))


@pytest.mark.parametrize(
    "key", ["", "has space", "-team", "team-", "a/b/c", "Example.com/team", "/team", "x/", "k" * 64]
)
def test_op_8_a_key_that_kubernetes_refuses_is_refused(key: str) -> None:
    for section, name in (("podTemplate", "labels"), ("podTemplate", "annotations"), ("scheduling", "nodeSelector")):
        assert refused("OP-8", found({section: {name: {key: "a"}}})).path == f"spec.{section}.{name}[{key}]"


@pytest.mark.parametrize("value", ["has space", "-a", "a-", "a/b"])
def test_op_8_a_label_value_that_kubernetes_refuses_is_refused(value: str) -> None:
    for section, name in (("podTemplate", "labels"), ("scheduling", "nodeSelector")):
        problem = refused("OP-8", found({section: {name: {"team": value}}}))
        assert (problem.path, value in problem.message) == (f"spec.{section}.{name}[team]", True)
    assert silent("OP-8", found({"podTemplate": {"annotations": {"team": value}}}))


def test_op_8_keys_and_values_that_kubernetes_takes_are_not_refused() -> None:
    labels = {"team": "search", "example.com/a_b.C-1": "", "k" * 63: "A.b_c-1"}
    spec = {"podTemplate": {"labels": labels, "annotations": labels}, "scheduling": {"nodeSelector": labels}}
    assert silent("OP-8", found(spec))


@pytest.mark.parametrize("size", ["0", 0, "0Gi", "0.0"])
def test_op_9_a_claim_has_a_size(size: Any) -> None:
    assert refused("OP-9", found({"engine": {"storage": {"size": size}}})).path == "spec.engine.storage.size"
    engine = examine(Case.of(an_engine_spec(storage={"size": size}), some_defaults()))
    assert refused("OP-9", engine).path == "spec.storage.size"
    assert silent("OP-9", found({"engine": {"storage": {"size": "1"}}}))
