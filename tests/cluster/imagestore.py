"""Images into a node's containerd, sending only the layers that it does not have.

Images live in OCI layout folders (`oci-layout`, `index.json`, `blobs/sha256/`), their layers uncompressed.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from tests.cluster.errors import HarnessError

NAME_ANNOTATION: Final = "io.containerd.image.name"
REFERENCE_ANNOTATION: Final = "org.opencontainers.image.ref.name"
MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"
INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"

Descriptor = dict[str, Any]
"""`mediaType`, `digest`, `size` of a blob."""


@dataclass(frozen=True)
class Layout:
    """An OCI layout folder."""

    folder: Path

    def blob(self, digest: str) -> Path:
        """The file of a blob."""
        return self.folder / "blobs" / digest.replace(":", "/")

    def references(self) -> dict[str, Descriptor]:
        """Image name to the descriptor of its manifest."""
        file = self.folder / "index.json"
        entries = json.loads(file.read_text())["manifests"] if file.exists() else []
        return {entry.get("annotations", {}).get(REFERENCE_ANNOTATION, ""): entry for entry in entries}

    def manifest(self, name: str) -> Descriptor:
        """The descriptor of an image's manifest. Raises `HarnessError` for an unknown image."""
        known = self.references()
        if name not in known:
            raise HarnessError(f"no image {name!r} in {self.folder}; it holds: {', '.join(known) or 'none'}")
        return known[name]

    def layers(self, name: str) -> list[tuple[str, Descriptor]]:
        """The layers of an image, lowest first, each with its chain ID: the name of its unpacked snapshot."""
        manifest = json.loads(self.blob(self.manifest(name)["digest"]).read_text())
        config = json.loads(self.blob(manifest["config"]["digest"]).read_text())
        return list(zip(chain_ids(config["rootfs"]["diff_ids"]), manifest["layers"], strict=True))

    def add(self, name: str, layer: bytes, config: dict[str, Any]) -> None:
        """Write an image of one layer; `config` is the `config` of the OCI image configuration."""
        diff_id = self._write(layer)
        rootfs = {"type": "layers", "diff_ids": [diff_id]}
        blob = {"architecture": "amd64", "os": "linux", "config": config, "rootfs": rootfs}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": self._descriptor(CONFIG_TYPE, json.dumps(blob).encode()),
            "layers": [self._descriptor(LAYER_TYPE, layer)],
        }
        entry = self._descriptor(MANIFEST_TYPE, json.dumps(manifest).encode())
        entry["annotations"] = {REFERENCE_ANNOTATION: name}
        entries = [other for key, other in self.references().items() if key != name]
        index = {"schemaVersion": 2, "manifests": [*entries, entry]}
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        (self.folder / "index.json").write_text(json.dumps(index))

    def prune(self) -> None:
        """Delete the blobs that no image refers to any more."""
        kept: set[str] = set()
        for name, entry in self.references().items():
            manifest = json.loads(self.blob(entry["digest"]).read_text())
            kept |= {entry["digest"], manifest["config"]["digest"]}
            kept |= {layer["digest"] for _, layer in self.layers(name)}
        for file in (self.folder / "blobs" / "sha256").glob("*"):
            if f"sha256:{file.name}" not in kept:
                file.unlink()

    def _descriptor(self, media_type: str, blob: bytes) -> Descriptor:
        return {"mediaType": media_type, "digest": self._write(blob), "size": len(blob)}

    def _write(self, blob: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
        file = self.blob(digest)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(blob)
        return digest


def chain_ids(diff_ids: Iterable[str]) -> list[str]:
    """The OCI chain ID of each layer: the hash of all layers up to it."""
    chain: list[str] = []
    for diff_id in diff_ids:
        both = f"{chain[-1]} {diff_id}".encode() if chain else b""
        chain.append(f"sha256:{hashlib.sha256(both).hexdigest()}" if chain else diff_id)
    return chain


@dataclass(frozen=True)
class ImageStore:
    """The images of one running containerd, reached by its socket."""

    socket: Path

    def ctr(self, *arguments: str) -> str:
        """Run `ctr` in the namespace that the kubelet uses."""
        done = subprocess.run([*self._ctr(), *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise HarnessError(f"ctr {' '.join(arguments[:3])}: {done.stderr.strip()}")
        return done.stdout

    def digests(self) -> dict[str, str]:
        """Image name to the digest of its manifest."""
        rows = [line.split() for line in self.ctr("images", "list").splitlines()[1:]]
        return {row[0]: row[2] for row in rows}

    def load(self, layout: Layout, name: str) -> None:
        """Import one image of a layout, without the layers whose snapshots are here already."""
        manifest = layout.manifest(name)
        if self.digests().get(name) == manifest["digest"]:
            return
        unpacked = {line.split()[0] for line in self.ctr("snapshots", "list").splitlines()[1:]}
        missing = [layer for chain, layer in layout.layers(name) if chain not in unpacked]
        config = json.loads(layout.blob(manifest["digest"]).read_text())["config"]
        entry = {**manifest, "annotations": {NAME_ANNOTATION: name}}
        with subprocess.Popen(
            [*self._ctr(), "images", "import", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None and process.stderr is not None
            try:
                write_archive(process.stdin, layout, entry, [manifest, config, *missing])
                process.stdin.close()
            except BrokenPipeError:
                pass  # the exit status and the message below say why
            message = process.stderr.read().decode(errors="replace")
        if process.returncode:
            raise HarnessError(f"image {name} was not imported: {message.strip()}")
        # An unpacked layer is never read again; the blobs of the large ones would double the disk space.
        for layer in missing:
            self.ctr("content", "rm", layer["digest"])

    def load_archive(self, archive: Path) -> None:
        """Import an OCI or Docker archive as it is."""
        self.ctr("images", "import", str(archive))

    def remove_containers(self) -> None:
        """Forget all (dead) containers and free their snapshots; images stay."""
        if names := self.ctr("containers", "list", "--quiet").split():
            for name in self.ctr("tasks", "list", "--quiet").split():
                self.ctr("tasks", "delete", "--force", name)
            self.ctr("containers", "delete", *names)

    def _ctr(self) -> list[str]:
        return ["ctr", "--address", str(self.socket), "--namespace", "k8s.io"]


def write_archive(target: IO[bytes], layout: Layout, entry: Descriptor, blobs: list[Descriptor]) -> None:
    """Write an OCI archive of one image with some of its blobs."""
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry]}
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    with tarfile.open(fileobj=target, mode="w|", bufsize=1 << 20) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for blob in blobs:
            member = tarfile.TarInfo(f"blobs/{blob['digest'].replace(':', '/')}")
            member.size = blob["size"]
            with layout.blob(blob["digest"]).open("rb") as file:
                archive.addfile(member, file)
