"""Room for weights that must be copied: files without a name, mapped, whose pages the kernel can write out.

A builder holds all weights of its rank until the engine is built. Copies in anonymous memory would count whole against
the pod's limit; these count like the checkpoint's own pages.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from pathlib import Path
from typing import Final

import torch

from trtllm_engine.build.publish import naming_full_volume

SMALL: Final = 1 << 20
"""Bytes below which a file is not worth it."""


def mapped_empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor in a file of the temporary folder, gone with the tensor.

    Raises NO_SPACE naming the folder if it does not fit: a mapping that found no room later would kill the process.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < SMALL:
        return torch.empty(shape, dtype=dtype)
    with tempfile.TemporaryFile() as file:
        with naming_full_volume(Path(tempfile.gettempdir())):
            os.posix_fallocate(file.fileno(), 0, size)
        memory = mmap.mmap(file.fileno(), size)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
