"""A model's folder: which of its files count, what they hash to, and that nothing leads out of the volume."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trtllm_engine.checkpoint.safetensors_header import LENGTH, Header, read_header
from trtllm_engine.contract import ExitCode, ModelSource
from trtllm_engine.failure import Failure

CONFIG: Final = "config.json"
TOKENIZER: Final = "tokenizer.json"
INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"

SMALL_FILE: Final = 1 << 20
"""Bytes below which a file is hashed whole."""

SAMPLE: Final = 4096
"""Bytes of each tensor that enter the digest."""

MODEL_FILES: Final = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.tiktoken", "merges.txt", "vocab.txt")
"""What a model is made of: weights, configs, tokenizer, chat template. Everything else is neither fetched nor hashed:
other weight formats, code, pictures, licences, sub-folders, and hidden files."""


def model_files(folder: Path) -> list[Path]:
    """The files that count, by name."""
    found = {path for pattern in MODEL_FILES for path in folder.glob(pattern)}
    return sorted(path for path in found if not path.name.startswith(".") and path.is_file())


def locate(path: Path, mount: Path) -> Path:
    """The model's folder, which must lie in the mount also when links are followed, as must each of its files.

    Raises MODEL_UNAVAILABLE if it is missing or empty, BAD_REQUEST if it leads out of the mount.
    """
    _stay_inside(path, mount)
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise _unavailable(f"{path} {what}; model must name a folder with a config.json")
    for file in model_files(path):
        _stay_inside(file, mount)
        if not os.access(file, os.R_OK):
            who = f"user {os.getuid()}, groups {', '.join(map(str, os.getgroups()))}"
            raise _unavailable(f"{file} cannot be read by the pod ({who}); let others read it: chmod -R o+rX {path}")
    if not (path / CONFIG).is_file():
        raise _unavailable(f"{path / CONFIG} does not exist; the folder holds {_listing(path)}")
    return path


def read_json(path: Path) -> dict[str, object]:
    """An object. Raises CORRUPT_INPUT naming the file."""
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise Failure(ExitCode.CORRUPT_INPUT, f"{path.name}: not JSON: {error}", field=path.name) from error
    if not isinstance(data, dict):
        raise Failure(ExitCode.CORRUPT_INPUT, f"{path.name}: expected a JSON object", field=path.name)
    return data


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up the weights, by name.

    Raises MODEL_UNAVAILABLE if one is missing, UNSUPPORTED if the weights have another format, CORRUPT_INPUT if the
    index makes no sense.
    """
    if (folder / INDEX).is_file():
        return _indexed(folder)
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    others = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.gguf") for path in folder.glob(pattern))
    if others:
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"{folder} holds its weights as {others[0]}; only safetensors are read: convert with save_pretrained()",
            field="model",
        )
    raise _unavailable(f"{folder} holds neither {SINGLE} nor {INDEX}; it holds {_listing(folder)}")


def read_headers(folder: Path) -> dict[str, Header]:
    """The headers of the weight files, by file name; a tensor that the index names must be where it says."""
    headers = {path.name: read_header(path) for path in weight_files(folder)}
    if (folder / INDEX).is_file():
        for tensor, file in sorted(_weight_map(folder).items()):
            if tensor not in headers[file].tensors:
                raise _corrupt_index(f"tensor {tensor} is not in {file}")
    return headers


def digest(folder: Path) -> str:
    """`sha256:...` over the name and size of every model file, small files' bytes, and of safetensors the headers and
    a sample of each tensor.

    Weights are not read whole: a block from the middle of each tensor tells a model from its next training run, which
    has the same shapes and the same small files. Raises CORRUPT_INPUT on a file that is no safetensors.
    """
    total = hashlib.sha256()
    for path in model_files(folder):
        size = path.stat().st_size
        total.update(f"{path.name}\0{size}\0".encode())
        if path.suffix == ".safetensors":
            header = read_header(path)
            total.update(header.raw)
            for block in _samples(path, header):
                total.update(block)
        elif size < SMALL_FILE:
            total.update(path.read_bytes())
    return f"sha256:{total.hexdigest()}"


def pod_path(source: ModelSource, mount: str, root: Path) -> Path:
    """Where a path that a request names as seen in the pod (`/models/...`) is, if the mount is at `root`.

    Raises BAD_REQUEST for a path outside of the mount.
    """
    path = Path(source.path or "")
    if not path.is_relative_to(mount) or ".." in path.parts:
        raise Failure(ExitCode.BAD_REQUEST, f"model.path {source.path!r} is not below {mount}", field="model.path")
    return root / path.relative_to(mount)


def _samples(path: Path, header: Header) -> Iterator[bytes]:
    """The middle of each tensor, in the order of the file."""
    data = LENGTH.size + len(header.raw)
    with path.open("rb") as file:
        for tensor in sorted(header.tensors.values(), key=lambda info: info.start):
            size = min(SAMPLE, tensor.bytes)
            file.seek(data + tensor.start + (tensor.bytes - size) // 2)
            yield file.read(size)


def _indexed(folder: Path) -> list[Path]:
    names = sorted(set(_weight_map(folder).values()))
    for name in names:
        if not (folder / name).is_file():
            raise _unavailable(f"{folder / name} does not exist, but {INDEX} names it: the download is not complete")
    return [folder / name for name in names]


def _weight_map(folder: Path) -> dict[str, str]:
    mapping = read_json(folder / INDEX).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        raise _corrupt_index("weight_map is missing or empty")
    for tensor, file in mapping.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise _corrupt_index(f"tensor {tensor}: {file!r} is no safetensors file beside the index")
    return mapping


def _stay_inside(path: Path, mount: Path) -> None:
    if not path.resolve().is_relative_to(mount.resolve()):
        raise Failure(
            ExitCode.BAD_REQUEST,
            f"{path} leads out of the volume, to {path.resolve()}; copy it into the volume",
            field="model",
        )


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing"


def _unavailable(message: str) -> Failure:
    return Failure(ExitCode.MODEL_UNAVAILABLE, message, field="model")


def _corrupt_index(message: str) -> Failure:
    return Failure(ExitCode.CORRUPT_INPUT, f"{INDEX}: {message}", field=INDEX)
