"""The tensors of a checkpoint's files, memory-mapped, and read by slice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from trtllm_engine.checkpoint.safetensors_header import Header


class TensorFiles:
    """`files` says in which file of the folder each tensor is; a file is opened when it is first needed."""

    def __init__(self, folder: Path, files: Mapping[str, str], stack: ExitStack) -> None:
        self._folder = folder
        self._files = files
        self._stack = stack
        self._open: dict[str, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def slice(self, name: str, *part: range) -> torch.Tensor:
        """A view of the mapped file; dimensions that are not named are whole."""
        file = self._files[name]
        if file not in self._open:
            self._open[file] = self._stack.enter_context(safe_open(str(self._folder / file), framework="pt"))
        tensor: torch.Tensor = self._open[file].get_slice(name)[tuple(slice(r.start, r.stop) for r in part) or ...]
        return tensor


@contextmanager
def tensor_files(folder: Path, headers: Mapping[str, Header]) -> Iterator[TensorFiles]:
    """Closed at the end; views live on."""
    with ExitStack() as stack:
        yield TensorFiles(folder, {name: file for file, header in headers.items() for name in header.tensors}, stack)
