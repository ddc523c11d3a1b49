"""Claims get a folder of their own, and only released volumes of ours are deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.api import Manifest
from tests.cluster.storage import (
    PROVISIONED_BY,
    PROVISIONER,
    SELECTED_NODE,
    folder_name,
    is_ours_to_delete,
    volume,
    volume_name,
    wants_volume,
)


def claim(
    storage_class: str | None = "local", *, node: str | None = None, bound_to: str = "", uid: str = "0b5e-41"
) -> Manifest:
    annotations = {SELECTED_NODE: node} if node else {}
    return {
        "metadata": {"namespace": "team", "name": "models", "uid": uid, "annotations": annotations},
        "spec": {
            "storageClassName": storage_class,
            "volumeName": bound_to,
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "7Gi"}},
        },
    }


@pytest.mark.parametrize(
    ("candidate", "wanted"),
    [
        (claim(), True),
        (claim("local-late"), False),
        (claim("local-late", node="node-0"), True),
        (claim(bound_to="pvc-1"), False),
        (claim("somebody-elses"), False),
        (claim(None), False),
    ],
    ids=["at once", "late without a node", "late with a node", "bound", "foreign class", "no class"],
)
def test_a_claim_is_served_when_its_class_says_so(candidate: Manifest, wanted: bool) -> None:
    assert wants_volume(candidate) is wanted


def test_a_volume_is_bound_to_its_claim_from_the_start() -> None:
    spec = volume(claim(uid="0b5e-41"), Path("/data/models"))["spec"]
    assert spec["claimRef"]["uid"] == "0b5e-41"
    assert spec["hostPath"] == {"path": "/data/models", "type": "Directory"}
    assert spec["capacity"] == {"storage": "7Gi"}
    assert spec["accessModes"] == ["ReadWriteMany"]


def test_a_new_claim_of_an_old_name_gets_another_volume_and_folder() -> None:
    old, new = claim(uid="11111111-a"), claim(uid="22222222-b")
    assert volume_name(old) != volume_name(new)
    assert folder_name(old) == "team_models_11111111"
    assert folder_name(new) == "team_models_22222222"


def released(**changes: object) -> Manifest:
    made = volume(claim(), Path("/data/models"))
    return {**made, "status": {"phase": "Released"}, **changes}


@pytest.mark.parametrize(
    ("candidate", "ours"),
    [
        (released(), True),
        (released(status={"phase": "Bound"}), False),
        (released(metadata={"name": "handmade"}), False),
        (released(metadata={"annotations": {PROVISIONED_BY: PROVISIONER}, "deletionTimestamp": "2026-01-01"}), False),
        (released(spec={"persistentVolumeReclaimPolicy": "Retain"}), False),
    ],
    ids=["released", "bound", "made by hand", "being deleted", "retained"],
)
def test_only_our_released_volumes_are_deleted(candidate: Manifest, ours: bool) -> None:
    assert is_ours_to_delete(candidate) is ours
