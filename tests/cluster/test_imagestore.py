"""Images are stored once, found by name, and sent without what the node has."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import IO, cast

import pytest

from tests.cluster.errors import HarnessError
from tests.cluster.imagestore import Layout, chain_ids, write_archive


def test_a_chain_id_names_a_layer_with_all_below_it() -> None:
    # The second value: printf 'sha256:aa sha256:bb' | sha256sum
    assert chain_ids(["sha256:aa", "sha256:bb"]) == [
        "sha256:aa",
        "sha256:b68ad689d6d1ec110ea1c13617437ad6f3766d4b3b309f6a603a222e07a0164f",
    ]
    assert chain_ids(["sha256:aa", "sha256:bb"])[0] == chain_ids(["sha256:aa", "sha256:cc"])[0]


def test_an_image_is_found_by_its_name_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.add("localhost/a:1", b"layer", {"Entrypoint": ["/a"]})
    layout.add("localhost/b:1", b"another", {})
    ((chain, layer),) = layout.layers("localhost/a:1")
    assert layout.blob(layer["digest"]).read_bytes() == b"layer"
    assert chain == layer["digest"]
    with pytest.raises(HarnessError, match=r"no image 'c' in .*it holds: localhost/a:1, localhost/b:1"):
        layout.manifest("c")


def test_pruning_drops_only_what_no_image_refers_to(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.add("localhost/a:1", b"old layer", {})
    layout.add("localhost/b:1", b"other layer", {})
    (_, old), (_, other) = layout.layers("localhost/a:1")[0], layout.layers("localhost/b:1")[0]
    layout.add("localhost/a:1", b"new layer", {})
    layout.prune()
    assert not layout.blob(old["digest"]).exists()
    assert layout.blob(other["digest"]).exists()
    assert layout.blob(layout.layers("localhost/a:1")[0][1]["digest"]).exists()


def test_an_archive_holds_exactly_the_blobs_that_the_node_lacks(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.add("localhost/a:1", b"layer", {})
    manifest = layout.manifest("localhost/a:1")
    target = io.BytesIO()
    write_archive(cast("IO[bytes]", target), layout, manifest, [manifest])
    with tarfile.open(fileobj=io.BytesIO(target.getvalue())) as archive:
        assert archive.getnames() == ["oci-layout", "index.json", f"blobs/{manifest['digest'].replace(':', '/')}"]
        index = archive.extractfile("index.json")
        assert index is not None
        assert json.load(index)["manifests"] == [manifest]
