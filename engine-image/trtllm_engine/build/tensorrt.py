"""The `tensorrt_rtx` and `tensorrt` toolchains: one adapter, since both have the same layer and builder API.

TensorRT for RTX builds for a named GPU without having one. TensorRT chooses its kernels on the GPU that it builds for,
so it needs that GPU.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

import torch

from trtllm_engine.build.build_clock import BuildClock, expected_seconds, ticking
from trtllm_engine.build.plan_header import TARGET_BITS
from trtllm_engine.build.publish import Sink
from trtllm_engine.build.toolchain import BuildJob
from trtllm_engine.build.weights import job_tensors, job_weights
from trtllm_engine.contract import ExitCode, QuantAlgo, Step, Toolchain
from trtllm_engine.failure import Failure
from trtllm_engine.network.scheme import Number
from trtllm_engine.network.tensorrt_ops import TrtNetwork, define_network
from trtllm_engine.progress import Reporter

NO_COLLECTIVES: Final = frozenset({"7.5"})
"""Compute capabilities for which TensorRT has no layer that talks to other ranks."""

NO_BFLOAT16: Final = frozenset({"7.5"})
"""Compute capabilities without bfloat16: the builder refuses it as a "HW-specific datatype"."""

NO_FLOAT32: Final = frozenset({"7.5"})
"""Compute capabilities for which TensorRT-RTX multiplies no float32 matrices: "FP32 GEMM is not supported"."""

NO_INT4: Final = frozenset({"7.5"})
"""Compute capabilities without 4-bit integers, for the same reason."""

NO_FP8: Final = frozenset({"7.5", "8.0", "8.6"})
"""Compute capabilities without 8-bit floating numbers, likewise."""


class TensorRtBuilder:
    """Builds a plan with the library of `toolchain`."""

    def __init__(self, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._trt: ModuleType = importlib.import_module(toolchain.value)

    def check(self, job: BuildJob) -> None:
        capability = job.target.compute_capability
        if capability is None:
            raise Failure(
                ExitCode.BAD_REQUEST,
                f"toolchain {self._toolchain.value} needs the GPU that the engine is for, such as 8.9",
                field="target.computeCapability",
            )
        allowed = self._targets()
        if capability not in allowed:
            raise Failure(
                ExitCode.UNSUPPORTED,
                f"{self._toolchain.value} cannot build for compute capability {capability} here; "
                f"it can for {', '.join(allowed) or 'none'}",
                field="target.computeCapability",
            )
        if job.args.dtype == "bfloat16" and capability in NO_BFLOAT16:
            raise Failure(
                ExitCode.UNSUPPORTED,
                f"compute capability {capability} has no bfloat16; use float16",
                field="args.dtype",
            )
        if job.args.dtype == "float32" and self._toolchain is Toolchain.TENSORRT_RTX and capability in NO_FLOAT32:
            raise Failure(
                ExitCode.UNSUPPORTED,
                f"{self._toolchain.value} has no float32 products for compute capability {capability}; use float16",
                field="args.dtype",
            )
        if job.scheme is not None and job.scheme.number is Number.INT4 and capability in NO_INT4:
            raise Failure(
                ExitCode.UNSUPPORTED,
                f"compute capability {capability} has no 4-bit integers; use {QuantAlgo.W8A16.value}",
                field="args.quant.algo" if job.stored is None else "model",
            )
        if job.scheme is not None and job.scheme.number is Number.FP8 and capability in NO_FP8:
            raise Failure(
                ExitCode.UNSUPPORTED,
                f"compute capability {capability} has no 8-bit floating numbers; it takes 8.9 or newer",
                field="args.quant.algo" if job.stored is None else "model",
            )
        if job.rank.tp_size > 1 and capability in NO_COLLECTIVES:
            raise Failure(
                ExitCode.UNSUPPORTED,
                f"{self._toolchain.value} has no tensor parallelism for compute capability {capability}; "
                "use pipeline parallelism, or a newer GPU",
                field="mapping",
            )

    def build(self, job: BuildJob, sink: Sink, progress: Reporter) -> dict[str, int]:
        trt, log = self._trt, ErrorLog()
        logger = _logger(trt, log)
        dtype: torch.dtype = getattr(torch, job.args.dtype)
        with progress.during(Step.WEIGHTS):
            weights = _load(job, dtype, progress)
            weight_bytes = sum(weight.nbytes for weight in weights.values())
        with progress.during(Step.NETWORK):
            builder = trt.Builder(logger)
            network = builder.create_network(0)
            kept = define_network(trt, network, job.config, weights, dtype, job.args.max_seq_len, rank=job.rank)
            log.raise_first()
        with progress.during(Step.BUILD):
            config = builder.create_builder_config()
            self._add_profiles(builder, config, network, job)
            self._set_target(config, job)
            layers = len(job.rank.layers(job.config))
            clock = BuildClock(config.num_optimization_profiles, expected_seconds(layers, weight_bytes))
            config.progress_monitor = monitor = _progress_monitor(trt, clock, progress, log)
            writer = _stream_writer(trt, sink, log)
            with ticking(lambda: progress.at(clock.fraction())):
                built = builder.build_serialized_network_to_stream(network, config, writer)
            # The library holds no reference to what it called back.
            del monitor, writer
        log.raise_first()
        if not built:
            raise Failure(ExitCode.BUILDER_ERROR, f"{self._toolchain.value} built no engine and said no reason")
        return {
            "layers": network.num_layers,
            "inputs": network.num_inputs,
            "outputs": network.num_outputs,
            "profiles": config.num_optimization_profiles,
            "weightBytes": weight_bytes,
            "constants": len(kept.constants),
        }

    def _targets(self) -> list[str]:
        """Compute capabilities that can be built for: RTX's list, or the GPU that is here."""
        if self._toolchain is Toolchain.TENSORRT_RTX:
            return [name for name in TARGET_BITS if hasattr(self._trt.ComputeCapability, _member(name))]
        if not torch.cuda.is_available():
            return []
        major, minor = torch.cuda.get_device_capability()
        return [f"{major}.{minor}"]

    def _set_target(self, config: Any, job: BuildJob) -> None:
        """A target that is not accepted is only visible in the return value: the build would go on for another."""
        if self._toolchain is not Toolchain.TENSORRT_RTX:
            return
        capability = job.target.compute_capability or ""
        config.num_compute_capabilities = 1
        if not config.set_compute_capability(getattr(self._trt.ComputeCapability, _member(capability)), 0):
            raise Failure(
                ExitCode.UNSUPPORTED,
                f"{self._toolchain.value} refused compute capability {capability}; "
                f"it lists {', '.join(self._targets())}",
                field="target.computeCapability",
            )

    def _add_profiles(self, builder: Any, config: Any, network: TrtNetwork, job: BuildJob) -> None:
        """Two: prompts (1 to max_input_len tokens), and decoding (one token), where kernels differ most."""
        longest = job.args.max_input_len
        for low, best, high in ((1, longest, longest), (1, 1, 1)):
            profile = builder.create_optimization_profile()
            for index in range(network.num_inputs):
                tensor = network.get_input(index)
                profile.set_shape(tensor.name, *_shapes(tuple(tensor.shape), job.args.max_batch_size, low, best, high))
            if config.add_optimization_profile(profile) < 0:
                raise Failure(ExitCode.BUILDER_ERROR, "TensorRT refused an optimization profile")


@dataclass(slots=True)
class ErrorLog:
    """The errors that the library logged. Several bad settings are only logged, and the build then goes on without
    them, so one line fails the build."""

    lines: list[str] = field(default_factory=list)
    failure: Failure | None = None
    """Raised by our own code inside a callback, where an exception cannot pass through the library."""

    def raise_first(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.lines:
            raise Failure(ExitCode.BUILDER_ERROR, "TensorRT could not build the engine", log=self.lines[0])


def _shapes(shape: tuple[int, ...], batch: int, low: int, best: int, high: int) -> tuple[tuple[int, ...], ...]:
    """(min, opt, max) of an input: the first open dimension is the batch, the second are `low` to `high` tokens."""

    def filled(rows: int, tokens: int) -> tuple[int, ...]:
        sizes = iter((rows, tokens))
        return tuple(next(sizes) if size < 0 else size for size in shape)

    return filled(1, low), filled(batch, best), filled(batch, high)


def _load(job: BuildJob, dtype: torch.dtype, progress: Reporter) -> dict[str, torch.Tensor]:
    total = len(job_tensors(job, dtype))
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in job_weights(job, dtype):
        weights[name] = tensor
        progress.at(len(weights) / total, f"tensor {len(weights)}/{total}")
    return weights


def _member(capability: str) -> str:
    return "SM" + capability.replace(".", "")


def _logger(trt: ModuleType, log: ErrorLog) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]  # a base that exists at run time only
        def __init__(self) -> None:
            super().__init__()

        def log(self, severity: Any, message: str) -> None:
            if severity in (self.ERROR, self.INTERNAL_ERROR):
                log.lines.append(message)
            if severity in (self.ERROR, self.INTERNAL_ERROR, self.WARNING):
                print(f"tensorrt: {message}", file=sys.stderr, flush=True)

    return Logger()


def _stream_writer(trt: ModuleType, sink: Sink, log: ErrorLog) -> Any:
    class StreamWriter(trt.IStreamWriter):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()

        def write(self, data: Any) -> int:
            """0 tells the library that writing failed; an exception must not reach it."""
            try:
                return sink.write(data)
            except Failure as failure:
                log.failure = failure
                return 0

    return StreamWriter()


def _progress_monitor(trt: ModuleType, clock: BuildClock, progress: Reporter, log: ErrorLog) -> Any:
    class ProgressMonitor(trt.IProgressMonitor):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()

        def phase_start(self, name: str, parent: str | None, steps: int) -> None:
            """Phases nest; only the ends of some tell how far the build is."""

        def phase_finish(self, name: str) -> None:
            clock.finish(name)

        def step_complete(self, name: str, step: int) -> bool:
            """False ends the build."""
            try:
                progress.at(clock.fraction())
            except Failure as failure:
                log.failure = failure
            return log.failure is None

    return ProgressMonitor()
