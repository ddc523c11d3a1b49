"""The first difference is named; what is not ours, and what only looks different, is none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_operator.desired.diff import first_difference

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


@given(JSON)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert first_difference(value, value) is None


@given(st.dictionaries(st.text(max_size=8), JSON), st.dictionaries(st.text(max_size=8), JSON))
def test_what_others_added_is_theirs(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert first_difference(ours, {**theirs, **ours}) is None


def pod(image: str = "a", **requests: str) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"image": image, "resources": {"requests": requests}}]}}}}


def test_a_difference_is_named_by_its_path_and_both_values() -> None:
    assert first_difference(pod("b"), pod("a")) == 'spec.template.spec.containers[0].image: "a" -> "b"'
    assert (
        first_difference({"metadata": {"labels": {"x/y": "1"}}}, {"metadata": {}})
        == 'metadata.labels: absent -> {"x/y": "1"}'
    )
    assert first_difference({"labels": {"x/y": "1"}}, {"labels": {}}) == 'labels["x/y"]: absent -> "1"'


def test_lists_count_by_length_and_index() -> None:
    assert first_difference({"args": ["a"]}, {"args": ["a", "b"]}) == "args: 2 -> 1 items"
    assert first_difference({"args": ["a", "c"]}, {"args": ["a", "b"]}) == 'args[1]: "b" -> "c"'


@pytest.mark.parametrize(
    ("ours", "live"), [("100m", "0.1"), ("1Gi", "1024Mi"), ("1000", "1k"), ("2", 2), ("0.5", "500m")]
)
def test_quantities_count_by_value(ours: str, live: Any) -> None:
    assert first_difference(pod(cpu=ours), pod(cpu=live)) is None


def test_quantities_of_another_value_differ() -> None:
    assert first_difference(pod(cpu="1"), pod(cpu="1m")) is not None
    assert first_difference({"tag": "100m"}, {"tag": "0.1"}) is not None, "only resources are quantities"


@pytest.mark.parametrize("empty", [{}, []])
def test_what_the_api_server_drops_is_no_difference(empty: Any) -> None:
    assert first_difference({"a": empty}, {}) is None


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "engine", **fields}]}}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "x"}, {"name": "A", "value": "1"}]}),
        ({"volumeMounts": [{"mountPath": "/a"}]}, {"volumeMounts": [{"mountPath": "/a"}, {"mountPath": "/var/run"}]}),
        ({"ports": [{"containerPort": 1}]}, {"ports": [{"containerPort": 2}, {"containerPort": 1, "protocol": "TCP"}]}),
    ],
)
def test_entries_that_others_added_are_theirs(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """To apply ours again would never end: the API server keeps them."""
    assert first_difference(container(**ours), container(**theirs)) is None


def test_a_sidecar_that_somebody_injected_is_theirs() -> None:
    live = container(image="a")
    live["spec"]["containers"].insert(0, {"name": "mesh", "image": "proxy"})
    assert first_difference(container(image="a"), live) is None
    assert first_difference(container(image="b"), live) == 'spec.containers[engine].image: "a" -> "b"'


def test_an_entry_of_ours_that_is_gone_or_changed_is_named_by_its_key() -> None:
    ours = container(env=[{"name": "A", "value": "1"}])
    assert first_difference(ours, container(env=[{"name": "B", "value": "1"}])) == (
        'spec.containers[engine].env[A]: absent -> {"name": "A", "value": "1"}'
    )
    changed = container(env=[{"name": "A", "value": "2"}])
    assert first_difference(ours, changed) == 'spec.containers[engine].env[A].value: "2" -> "1"'


def test_a_list_whose_entries_have_no_names_counts_as_a_whole() -> None:
    assert first_difference({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "a"}, {"key": "b"}]}) is not None
