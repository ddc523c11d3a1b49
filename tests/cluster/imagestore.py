"""From the builder's layer store into a node's containerd without copying: the files are hard links.

Both keep unpacked layers as overlay file systems want them, in folders of one file system (the cache), and neither ever
writes into a finished layer. So a layer of several GB is given to a node in seconds, and takes no space.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster.errors import HarnessError
from tests.cluster.locking import exclusive
from tests.cluster.oci import Image, Layer, chain_ids, digest_of

GC_ROOT: Final = "containerd.io/gc.root"
"""Keeps a snapshot while no image refers to it yet; `ctr` sets it on what it prepares and commits."""

Row = dict[str, Any]
"""A record of the store's own JSON files."""


@dataclass(frozen=True)
class BuildStore:
    """The layers and images that buildah keeps in `folder`, with the overlay driver."""

    folder: Path

    def image(self, name: str) -> tuple[Image, list[Path]]:
        """A built image, and for each of its layers the folder of its unpacked files.

        Raises `HarnessError` if there is none of this name.
        """
        found = next((image for image in self._table("overlay-images/images.json") if name in _names(image)), None)
        if found is None:
            raise HarnessError(f"no built image {name!r}; built are: {', '.join(self.names()) or 'none'}")
        # The store names a file after its key, in base64 where the key is more than letters and digits.
        key = base64.b64encode(f"sha256:{found['id']}".encode()).decode()
        config = (self.folder / "overlay-images" / found["id"] / f"={key}").read_bytes()
        layers = {layer["id"]: layer for layer in self._table("overlay-layers/layers.json")}
        chain: list[Row] = []
        at = found["layer"]
        while at:
            chain.insert(0, layers[at])
            at = layers[at].get("parent")
        described = tuple(Layer(layer["diff-digest"], layer["diff-size"]) for layer in chain)
        return Image(name, config, described), [self.folder / "overlay" / layer["id"] / "diff" for layer in chain]

    def names(self) -> list[str]:
        """The names of all built images."""
        return [name for image in self._table("overlay-images/images.json") for name in _names(image)]

    def _table(self, name: str) -> list[Row]:
        file = self.folder / name
        rows: list[Row] = json.loads(file.read_text()) if file.exists() else []
        return rows


def _names(image: Row) -> list[str]:
    return image.get("names") or []


@dataclass(frozen=True)
class ImageStore:
    """The images of one running containerd, reached by its socket."""

    socket: Path

    def ctr(self, *arguments: str, input: bytes | None = None) -> str:
        """Run `ctr` in the namespace that the kubelet uses."""
        argv = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        done = subprocess.run(argv, input=input, capture_output=True, check=False)
        if done.returncode:
            raise HarnessError(f"ctr {' '.join(arguments[:3])}: {done.stderr.decode().strip()}")
        return done.stdout.decode()

    def digests(self) -> dict[str, str]:
        """Image name to the digest of its manifest."""
        rows = [line.split() for line in self.ctr("images", "list").splitlines()[1:]]
        return {row[0]: row[2] for row in rows}

    def load(self, store: BuildStore, name: str) -> None:
        """Give containerd a built image; layers that it has stay as they are. Safe when several do it at once."""
        image, folders = store.image(name)
        with exclusive(self.socket.with_suffix(".load")):
            if self.digests().get(name) == digest_of(image.manifest()):
                return
            present = {line.split()[0] for line in self.ctr("snapshots", "list").splitlines()[1:]}
            chain = chain_ids(layer.digest for layer in image.layers)
            linked = [index for index, chain_id in enumerate(chain) if chain_id not in present]
            for index in linked:
                self._link(folders[index], chain[index], *chain[max(index - 1, 0) : index])
            self.ctr("images", "import", "-", input=image.archive())
            for index in linked:  # from here on the image keeps them
                self.ctr("snapshots", "label", chain[index], f"{GC_ROOT}=")

    def load_archive(self, archive: bytes) -> None:
        """Import an OCI or Docker archive as it is."""
        self.ctr("images", "import", "-", input=archive)

    def _link(self, files: Path, chain_id: str, *parent: str) -> None:
        """Make the snapshot of one layer on top of its parent, from unpacked files."""
        draft = f"linking-{time.time_ns()}"
        self.ctr("snapshots", "prepare", draft, *parent)
        try:
            upper = upper_folder(self.ctr("snapshots", "mounts", "/nowhere", draft))
            copy = ["cp", "--archive", "--link", f"{files}/.", str(upper)]
            done = subprocess.run(copy, capture_output=True, text=True, check=False)
            if done.returncode:
                raise HarnessError(f"layer {chain_id} was not linked: {done.stderr.strip()[-1000:]}")
            self.ctr("snapshots", "commit", chain_id, draft)
        except BaseException:
            self.ctr("snapshots", "delete", draft)
            raise


def upper_folder(command: str) -> Path:
    """Where writes into a snapshot go, read from the mount command that containerd prints for it."""
    overlay = re.search(r"\bupperdir=([^,\s]+)", command)
    lowest = re.search(r"-t bind (\S+) ", command)
    match = overlay or lowest
    if match is None:
        raise HarnessError(f"no writable folder in: {command.strip()}")
    return Path(match[1])
