"""The `torch` toolchain: a rank's weights, converted, in one safetensors file. Runs on any node."""

from __future__ import annotations

import json
import math
from typing import Final

import torch

from trtllm_engine.build.publish import Sink
from trtllm_engine.build.toolchain import BuildJob
from trtllm_engine.build.weights import job_tensors, job_weights
from trtllm_engine.checkpoint.safetensors_header import LENGTH
from trtllm_engine.contract import Step
from trtllm_engine.progress import Reporter

DTYPES: Final = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.float8_e4m3fn: "F8_E4M3",
}
"""How safetensors spells them."""

ALIGNMENT: Final = 8
"""The header is padded so that tensors begin aligned, as the format asks."""


class TorchBuilder:
    """Writes tensors one by one: the peak is the largest tensor, not the model."""

    def check(self, job: BuildJob) -> None:
        """Every decoder that can be read can be built."""

    def build(self, job: BuildJob, sink: Sink, progress: Reporter) -> dict[str, int]:
        dtype: torch.dtype = getattr(torch, job.args.dtype)
        with progress.during(Step.NETWORK):
            header, total = _header(job, dtype)
        with progress.during(Step.WEIGHTS):
            sink.write(header)
            written = tensors = 0
            for _, tensor in job_weights(job, dtype):
                written += sink.write(tensor.view(-1).view(torch.uint8).numpy().data)
                tensors += 1
                progress.at(written / total, f"tensor {tensors}")
        return {"tensors": tensors, "weightBytes": written}


def _header(job: BuildJob, dtype: torch.dtype) -> tuple[bytes, int]:
    """The header for the tensors in the order in which `job_weights` yields them, and the size of all of them."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (kind, shape) in job_tensors(job, dtype).items():
        size = kind.itemsize * math.prod(shape)
        entries[name] = {"dtype": DTYPES[kind], "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-(LENGTH.size + len(raw)) % ALIGNMENT)
    return LENGTH.pack(len(raw)) + raw, position
