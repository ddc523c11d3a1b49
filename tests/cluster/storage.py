"""A small provisioner: gives each claim a folder of the machine, as a hostPath volume.

Two classes: `local`, the default, is provisioned at once; `local-late` waits until the scheduler has chosen a node
(WaitForFirstConsumer). Capacity is promised, not enforced. Run as a program beside the cluster:
`python -m tests.cluster.storage --server URL --ca FILE --token-file FILE --folder FOLDER`.
"""

from __future__ import annotations

import argparse
import http
import logging
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cluster.api import Api, ApiError, Manifest

PROVISIONER: Final = "trtllm-operator.dev/local"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
CLASSES: Final = {"local": "Immediate", "local-late": "WaitForFirstConsumer"}
PERIOD: Final = 0.25
"""Seconds between looks at the claims."""

LOG = logging.getLogger("provisioner")


def storage_class(name: str) -> Manifest:
    """The StorageClass of one of `CLASSES`."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"} if name == "local" else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": default},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": CLASSES[name],
    }


def volume_name(claim: Manifest) -> str:
    """The name of a claim's volume: by UID, so a new claim of an old name gets a new, empty folder."""
    return f"pvc-{claim['metadata']['uid']}"


def folder_name(claim: Manifest) -> str:
    """The name of a claim's folder: tells people whose it is."""
    meta = claim["metadata"]
    return re.sub(r"[^a-z0-9.-]", "_", f"{meta['namespace']}_{meta['name']}_{meta['uid'][:8]}")


def wants_volume(claim: Manifest) -> bool:
    """Whether it is our turn: the claim has one of our classes, no volume yet, and (if late) a node."""
    name = claim["spec"].get("storageClassName")
    if name not in CLASSES or claim["spec"].get("volumeName") or "deletionTimestamp" in claim["metadata"]:
        return False
    return CLASSES[name] == "Immediate" or SELECTED_NODE in claim["metadata"].get("annotations", {})


def volume(claim: Manifest, folder: Path) -> Manifest:
    """The PersistentVolume for a claim, bound to it from the start."""
    spec, meta = claim["spec"], claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name(claim), "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec["storageClassName"],
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
        },
    }


def is_ours_to_delete(candidate: Manifest) -> bool:
    """Whether a volume lost its claim, was made by us, and is to be deleted with its files."""
    return (
        candidate["metadata"].get("annotations", {}).get(PROVISIONED_BY) == PROVISIONER
        and candidate["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        and candidate.get("status", {}).get("phase") == "Released"
        and "deletionTimestamp" not in candidate["metadata"]
    )


def provision_once(api: Api, root: Path) -> None:
    """One look at all claims and volumes."""
    for claim in api.get("/api/v1/persistentvolumeclaims")["items"]:
        if wants_volume(claim):
            folder = root / folder_name(claim)
            folder.mkdir(parents=True, exist_ok=True)
            # hostPath ignores fsGroup, so any user may write.
            folder.chmod(0o777)
            try:
                api.create("/api/v1/persistentvolumes", volume(claim, folder))
            except ApiError as error:
                if error.status != http.HTTPStatus.CONFLICT:  # the volume is there, its claim is not bound yet
                    raise
            else:
                LOG.info("volume %s at %s", volume_name(claim), folder)
    for candidate in api.get("/api/v1/persistentvolumes")["items"]:
        if is_ours_to_delete(candidate):
            name = candidate["metadata"]["name"]
            shutil.rmtree(candidate["spec"]["hostPath"]["path"], ignore_errors=True)
            api.delete(f"/api/v1/persistentvolumes/{name}")
            LOG.info("volume %s deleted with its files", name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Provision until killed; an API server that is away is asked again."""
    parser = argparse.ArgumentParser(description="Serve claims from folders of this machine.")
    for name, what in (("server", "URL of the API server"), ("token-file", "file that holds a bearer token")):
        parser.add_argument(f"--{name}", required=True, help=what)
    parser.add_argument("--ca", type=Path, required=True, help="file that the server's certificate is checked with")
    parser.add_argument("--folder", type=Path, required=True, help="where the volumes' folders go")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    api = Api(options.server, Path(options.token_file).read_text(), options.ca)
    while True:
        try:
            provision_once(api, options.folder)
        except (ApiError, OSError) as error:
            LOG.warning("will try again: %s", error)
        time.sleep(PERIOD)


if __name__ == "__main__":
    main()
