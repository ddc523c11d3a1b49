"""OCI image archives, made in memory: enough to name layers that a container runtime has already."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

NAME_ANNOTATION: Final = "io.containerd.image.name"
MEDIA_TYPE: Final = "application/vnd.oci.image"


def digest_of(blob: bytes) -> str:
    """The digest that names a blob."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def chain_ids(diff_ids: Iterable[str]) -> list[str]:
    """The OCI chain ID of each layer: names it together with all layers below, and so its unpacked snapshot."""
    chain: list[str] = []
    for diff_id in diff_ids:
        chain.append(digest_of(f"{chain[-1]} {diff_id}".encode()) if chain else diff_id)
    return chain


@dataclass(frozen=True)
class Layer:
    """One uncompressed layer; its digest is its diff ID. `size` in bytes."""

    digest: str
    size: int


@dataclass(frozen=True)
class Image:
    """An image: its OCI configuration as JSON bytes, and its layers, lowest first."""

    name: str
    config: bytes
    layers: tuple[Layer, ...]

    def manifest(self) -> bytes:
        """The OCI manifest; its digest is the image's identity."""
        layers = [_descriptor("layer.v1.tar", layer.digest, layer.size) for layer in self.layers]
        config = _descriptor("config.v1+json", digest_of(self.config), len(self.config))
        kind = f"{MEDIA_TYPE}.manifest.v1+json"
        return json.dumps({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers}).encode()

    def archive(self, *layers: bytes) -> bytes:
        """An OCI archive with the given layers only: a runtime does not ask for those that it has unpacked."""
        manifest = self.manifest()
        entry = _descriptor("manifest.v1+json", digest_of(manifest), len(manifest))
        index = {"schemaVersion": 2, "manifests": [{**entry, "annotations": {NAME_ANNOTATION: self.name}}]}
        files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
        files |= {f"blobs/{digest_of(blob).replace(':', '/')}": blob for blob in (manifest, self.config, *layers)}
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode="w") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return target.getvalue()


def single_layer(name: str, layer: bytes, config: dict[str, object]) -> Image:
    """An image of one layer; `config` is the `config` of the OCI image configuration."""
    rootfs = {"type": "layers", "diff_ids": [digest_of(layer)]}
    blob = json.dumps({"architecture": "amd64", "os": "linux", "config": config, "rootfs": rootfs})
    return Image(name, blob.encode(), (Layer(digest_of(layer), len(layer)),))


def _descriptor(kind: str, digest: str, size: int) -> dict[str, object]:
    return {"mediaType": f"{MEDIA_TYPE}.{kind}", "digest": digest, "size": size}
