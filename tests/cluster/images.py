"""The two images, built from their real Dockerfiles by buildah, on a base made from Debian packages.

Nothing is pulled. Layers stay in the cache, so a change of code builds only the last ones; an unchanged tree builds
nothing.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.errors import HarnessError
from tests.cluster.imagestore import BuildStore
from tests.cluster.locking import exclusive
from tests.cluster.paths import REPOSITORY, cache
from tests.cluster.prerequisites import IMAGE_COMMANDS, ensure
from tests.cluster.progress import step

DEBIAN: Final = "bookworm"
BASE_PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
BASE_IMAGE: Final = f"localhost/python-base:{DEBIAN}-{hashlib.sha256(repr(BASE_PACKAGES).encode()).hexdigest()[:8]}"
"""Stands in for the Dockerfiles' default base, which comes from a registry."""

CERTIFICATES: Final = Path("/etc/ssl/certs")


@dataclass(frozen=True)
class Recipe:
    """One image: its name, its Dockerfile, and the files and folders that the Dockerfile copies."""

    name: str
    dockerfile: str
    sources: tuple[str, ...]

    def key(self) -> str:
        """Changes with any file that can change the image."""
        digest = hashlib.sha256(BASE_IMAGE.encode())
        for file in sorted(self._files()):
            digest.update(str(file.relative_to(REPOSITORY)).encode() + b"\0" + file.read_bytes() + b"\0")
        return digest.hexdigest()

    def _files(self) -> Iterator[Path]:
        for name in (self.dockerfile, ".dockerignore", *self.sources):
            path = REPOSITORY / name
            found = path.rglob("*") if path.is_dir() else [path]
            yield from (file for file in found if file.is_file() and file.suffix != ".pyc")


OPERATOR: Final = Recipe(
    "localhost/trtllm-operator:dev",
    "operator/Dockerfile",
    ("requirements/operator.lock", "operator/trtllm_operator", "engine-image/trtllm_engine/contract.py"),
)
ENGINE: Final = Recipe(
    "localhost/trtllm-engine:dev",
    "engine-image/Dockerfile",
    ("requirements/engine.lock", "engine-image/trtllm_engine"),
)


@dataclass(frozen=True)
class Images:
    """Names under which a node knows the images; `imagePullPolicy` must not be Always."""

    operator: str
    engine: str


def build_store() -> BuildStore:
    """Layers and images between builds: a store of our own, so the machine's is never touched."""
    return BuildStore(cache() / "buildah")


def build_images() -> Images:
    """Build what changed. Raises `HarnessError` with the end of the build's output."""
    if os.geteuid() != 0:
        raise HarnessError("building images needs root; run with sudo")
    ensure(IMAGE_COMMANDS)
    with exclusive(cache() / "locks" / "images"):
        for recipe in (OPERATOR, ENGINE):
            _build(recipe)
        # What earlier builds left; the layers of the present images stay, the next build starts from them.
        _buildah("rmi", "--prune")
    return Images(operator=OPERATOR.name, engine=ENGINE.name)


def _build(recipe: Recipe) -> None:
    mark = cache() / "images" / f"{recipe.dockerfile.replace('/', '-')}.key"
    key = recipe.key()
    names = build_store().names()
    if recipe.name in names and mark.exists() and mark.read_text() == key:
        return
    if BASE_IMAGE not in names:
        with step(f"base image from Debian {DEBIAN}"):
            _build_base()
    with step(f"image {recipe.name}"), tempfile.TemporaryDirectory() as settings:
        _buildah(
            *("bud", "--layers", "--isolation", "chroot", "--network", "host"),
            *_machine_settings(Path(settings)),
            *("--build-arg", f"BASE_IMAGE={BASE_IMAGE}", "--file", recipe.dockerfile, "--tag", recipe.name, "."),
        )
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(key)


def _build_base() -> None:
    with tempfile.TemporaryDirectory(dir=cache()) as draft:
        root = Path(draft) / "root"
        packages = f"--include={','.join(BASE_PACKAGES)}"
        _run(["debootstrap", "--variant=minbase", packages, DEBIAN, str(root)])
        for leftover in ("var/cache/apt/archives", "var/lib/apt/lists"):
            for file in (root / leftover).glob("*.*"):
                file.unlink()
        archive = Path(draft) / "root.tar"
        _run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(archive), "."])
        container = _buildah("from", "scratch").strip()
        try:
            _buildah("add", container, str(archive), "/")
            _buildah("commit", "--disable-compression", container, BASE_IMAGE)
        finally:
            _buildah("rm", container)


def _machine_settings(folder: Path) -> list[str]:
    """Mounts for the build only: the machine's certificate authorities and package indexes, which its network may need.

    They are no part of the image: nothing of them is in the Dockerfiles.
    """
    bundle = CERTIFICATES / "ca-certificates.crt"
    index = os.environ.get("PIP_INDEX_URL")
    pip = ["[global]", *([f"index-url = {index}"] if index else []), *([f"cert = {bundle}"] if bundle.exists() else [])]
    uv = [*([f'index-url = "{index}"'] if index else []), "native-tls = true"]
    (folder / "pip.conf").write_text("\n".join(pip))
    (folder / "uv.toml").write_text("\n".join(uv))
    mounts = {folder / "pip.conf": "/etc/pip.conf", folder / "uv.toml": "/etc/uv/uv.toml"}
    if bundle.exists():
        mounts[CERTIFICATES] = str(CERTIFICATES)
    return [f"--volume={source}:{target}:ro" for source, target in mounts.items()]


def _buildah(*arguments: str) -> str:
    folder = build_store().folder
    return _run(["buildah", f"--root={folder}", f"--runroot={folder}-run", "--storage-driver=overlay", *arguments])


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        output = "\n".join([*done.stdout.splitlines()[-20:], *done.stderr.splitlines()[-20:]])
        raise HarnessError(f"{' '.join(argv[:6])} … failed:\n{output}")
    return done.stdout
