"""The store: the newest version of every object, and never a ghost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reconcile.builders import a_key, an_object
from trtllm_engine.contract import Progress, Step
from trtllm_operator.reconcile.store import Key, Store, version_of


def test_a_newer_version_replaces_an_older_one() -> None:
    store = Store()
    assert store.put(an_object(version=9))
    assert store.put(an_object(version=10))
    assert store.get(a_key()) == an_object(version=10)


def test_an_older_or_equal_version_is_ignored() -> None:
    store = Store()
    store.put(an_object(version=10))
    assert not store.put(an_object(version=9))
    assert not store.put(an_object(version=10, labels={"late": "line"}))
    assert store.get(a_key()) == an_object(version=10)


@given(st.permutations(range(1, 8)))
def test_whatever_the_order_of_lines_the_highest_version_stays(versions: list[int]) -> None:
    store = Store()
    for version in versions:
        store.put(an_object(version=version))
    stored = store.get(a_key())
    assert stored is not None
    assert version_of(stored) == 7


def test_a_late_line_of_a_deleted_object_does_not_bring_it_back() -> None:
    store = Store()
    store.put(an_object(version=5))
    assert store.delete(a_key(), "a", version=7)
    assert not store.put(an_object(version=6))
    assert store.get(a_key()) is None


def test_a_deletion_that_overtakes_the_creation_still_counts() -> None:
    store = Store()
    assert not store.delete(a_key(), "a", version=7)
    assert not store.put(an_object(version=5))


def test_an_object_that_only_left_the_selection_may_come_back() -> None:
    """Somebody takes our label off (the watch says deleted) and we put it on again: same UID, newer version."""
    store = Store()
    store.put(an_object(version=5))
    store.delete(a_key(), "a", version=6)
    assert store.put(an_object(version=8))


def test_a_new_object_of_the_same_name_replaces_the_old_one() -> None:
    store = Store()
    store.put(an_object(version=5, uid="old", owner="parent"))
    assert store.put(an_object(version=8, uid="new"))
    assert store.owned("parent") == []


def test_lines_of_the_replaced_object_change_nothing() -> None:
    store = Store()
    store.put(an_object(version=5, uid="old"))
    store.put(an_object(version=8, uid="new"))
    assert not store.put(an_object(version=7, uid="old"))
    assert not store.delete(a_key(), "old", version=7)
    assert store.get(a_key()) == an_object(version=8, uid="new")


def test_children_are_found_by_the_uid_of_their_controller() -> None:
    store = Store()
    store.put(an_object("b", owner="parent"))
    store.put(an_object("a", owner="parent"))
    store.put(an_object("c", owner="stranger"))
    assert [child["metadata"]["name"] for child in store.owned("parent")] == ["a", "b"]


def test_an_owner_that_is_not_the_controller_does_not_own() -> None:
    store = Store()
    obj = an_object()
    obj["metadata"]["ownerReferences"] = [{"uid": "parent"}]
    store.put(obj)
    assert store.owned("parent") == []


def test_objects_are_found_by_indexed_labels_in_one_namespace_or_in_all() -> None:
    store = Store(labels=["role"])
    store.put(an_object("a", labels={"role": "build"}))
    store.put(an_object("b", namespace="other", labels={"role": "build"}))
    store.put(an_object("c", labels={"role": "server"}))
    assert [o["metadata"]["name"] for o in store.by_label("Pod", None, "role", "build")] == ["a", "b"]
    assert [o["metadata"]["name"] for o in store.by_label("Pod", "other", "role", "build")] == ["b"]


def test_a_label_that_changes_moves_the_object() -> None:
    store = Store(labels=["role"])
    store.put(an_object(version=1, labels={"role": "build"}))
    store.put(an_object(version=2, labels={"role": "server"}))
    assert store.by_label("Pod", None, "role", "build") == []


def test_asking_for_a_label_that_is_not_indexed_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="label colour is not indexed; indexed are role"):
        Store(labels=["role"]).by_label("Pod", None, "colour", "red")


def test_kinds_and_namespaces_are_listed_apart() -> None:
    store = Store()
    store.put(an_object("a", kind="Job"))
    store.put(an_object("a", uid="pod"))
    store.put(an_object("b", namespace="other"))
    assert store.list("Job") == [an_object("a", kind="Job")]
    assert store.list("Pod", "other") == [an_object("b", namespace="other")]
    assert [o["metadata"]["name"] for o in store.list("Pod")] == ["a", "b"]


def test_progress_is_forgotten_together_with_the_pod() -> None:
    store = Store()
    store.put(an_object(version=1))
    store.set_progress(a_key(), Progress(ts="2026-01-01T00:00:00Z", step=Step.BUILD, percent=40.0))
    assert store.progress(a_key()) is not None
    store.delete(a_key(), "a", version=2)
    assert store.progress(a_key()) is None


def test_progress_of_a_pod_that_is_gone_is_not_kept() -> None:
    store = Store()
    store.set_progress(a_key(), Progress(ts="2026-01-01T00:00:00Z", step=Step.BUILD, percent=40.0))
    assert store.progress(a_key()) is None


def test_a_key_reads_like_a_path() -> None:
    assert str(Key("Pod", "prod", "llama-0")) == "Pod prod/llama-0"
    assert str(Key("Node", "", "gpu-a")) == "Node gpu-a"
