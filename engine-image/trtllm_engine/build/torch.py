"""The `torch` toolchain: the decoder's weights, converted, in one safetensors file. Runs on any node."""

from __future__ import annotations

import json
from typing import Final

import torch

from trtllm_engine.build.publish import Sink
from trtllm_engine.build.toolchain import BuildJob
from trtllm_engine.checkpoint.safetensors_header import LENGTH
from trtllm_engine.checkpoint.weights import load_weights, weight_order
from trtllm_engine.contract import Step
from trtllm_engine.network.families import family_of
from trtllm_engine.network.parameters import parameters
from trtllm_engine.progress import Reporter

DTYPES: Final = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
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
            header, total = _header(job, dtype.itemsize)
        with progress.during(Step.WEIGHTS):
            sink.write(header)
            written = tensors = 0
            for _, tensor in load_weights(job.model, job.config, dtype):
                written += sink.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
                tensors += 1
                progress.at(written / total, f"tensor {tensors}")
        return {"tensors": tensors, "weightBytes": written}


def _header(job: BuildJob, item_bytes: int) -> tuple[bytes, int]:
    """The header for the tensors in the order in which `load_weights` yields them, and the size of all of them."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    family = family_of(job.config.architecture)
    shapes = {family.tensor(role, layer): shape for role, layer, shape in parameters(job.config)}
    for name, _ in weight_order(job.model, job.config):
        size = item_bytes * torch.Size(shapes[name]).numel()
        entries[name] = {
            "dtype": DTYPES[job.args.dtype],
            "shape": list(shapes[name]),
            "data_offsets": [position, position + size],
        }
        position += size
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-(LENGTH.size + len(raw)) % ALIGNMENT)
    return LENGTH.pack(len(raw)) + raw, position
