"""Images are found by name, and given to a node without what it has already."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.cluster.errors import HarnessError
from tests.cluster.imagestore import BuildStore, upper_folder
from tests.cluster.oci import chain_ids, digest_of, single_layer


def test_a_chain_id_names_a_layer_with_all_below_it() -> None:
    # The second value: printf 'sha256:aa sha256:bb' | sha256sum
    assert chain_ids(["sha256:aa", "sha256:bb"]) == [
        "sha256:aa",
        "sha256:b68ad689d6d1ec110ea1c13617437ad6f3766d4b3b309f6a603a222e07a0164f",
    ]


def names_in(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getnames()


def test_an_archive_may_leave_out_the_layers_that_a_node_has() -> None:
    image = single_layer("localhost/a:1", b"layer", {"Entrypoint": ["/a"]})
    blob = f"blobs/{digest_of(b'layer').replace(':', '/')}"
    assert blob in names_in(image.archive(b"layer"))
    assert blob not in names_in(image.archive())
    assert set(names_in(image.archive(b"layer"))) == {*names_in(image.archive()), blob}


def test_an_archive_tells_the_name_and_the_manifest() -> None:
    image = single_layer("localhost/a:1", b"layer", {})
    with tarfile.open(fileobj=io.BytesIO(image.archive())) as opened:
        index = opened.extractfile("index.json")
        assert index is not None
        (entry,) = json.load(index)["manifests"]
    assert entry["digest"] == digest_of(image.manifest())
    assert entry["annotations"] == {"io.containerd.image.name": "localhost/a:1"}


@pytest.fixture
def store(tmp_path: Path) -> BuildStore:
    """A store with one image of two layers, and the untagged image that it was built on."""
    layers = [
        {"id": "base", "diff-digest": "sha256:aa", "diff-size": 10},
        {"id": "top", "parent": "base", "diff-digest": "sha256:bb", "diff-size": 2},
    ]
    images = [{"id": "0", "layer": "base"}, {"id": "1", "layer": "top", "names": ["localhost/a:1"]}]
    for table, rows in (("overlay-layers/layers.json", layers), ("overlay-images/images.json", images)):
        (tmp_path / table).parent.mkdir()
        (tmp_path / table).write_text(json.dumps(rows))
    config = tmp_path / "overlay-images" / "1" / f"={base64.b64encode(b'sha256:1').decode()}"
    config.parent.mkdir()
    config.write_bytes(b'{"os":"linux"}')
    return BuildStore(tmp_path)


def test_a_built_image_is_read_from_the_lowest_layer_up(store: BuildStore) -> None:
    image, folders = store.image("localhost/a:1")
    assert image.config == b'{"os":"linux"}'
    assert [(layer.digest, layer.size) for layer in image.layers] == [("sha256:aa", 10), ("sha256:bb", 2)]
    assert folders == [store.folder / "overlay/base/diff", store.folder / "overlay/top/diff"]


def test_an_image_that_was_not_built_is_refused_with_those_that_were(store: BuildStore) -> None:
    with pytest.raises(HarnessError, match="no built image 'localhost/b:1'; built are: localhost/a:1"):
        store.image("localhost/b:1")


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("mount -t bind /store/snapshots/3/fs /nowhere -o rw,rbind", "/store/snapshots/3/fs"),
        (
            "mount -t overlay overlay /nowhere -o index=off,workdir=/s/9/work,upperdir=/s/9/fs,lowerdir=/s/3/fs",
            "/s/9/fs",
        ),
    ],
    ids=["lowest layer", "another layer"],
)
def test_files_of_a_layer_go_where_the_snapshot_takes_writes(command: str, folder: str) -> None:
    assert upper_folder(command) == Path(folder)
