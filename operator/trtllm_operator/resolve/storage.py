"""How large the claim of an engine must be."""

from __future__ import annotations

from typing import Final

from .memory import DTYPE_BYTES
from .resolution import Resolution

GIB: Final = 2**30
OVERHEAD: Final = GIB
"""Kernels, tokenizer and records, and what a file system needs itself."""


def engine_storage(resolution: Resolution) -> str:
    """Quantity: room for the engine and, beside it, for one rebuild; both are there before a corrupt one is replaced.

    An engine is about as large as its weights: a plan adds a few MB of kernels.
    """
    need = 2 * resolution.facts.parameters * DTYPE_BYTES[resolution.args.dtype] + OVERHEAD
    return f"{-(-need // GIB)}Gi"
