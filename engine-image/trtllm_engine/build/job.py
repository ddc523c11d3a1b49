"""One build pod: from a request to a published rank."""

from __future__ import annotations

import dataclasses
import resource
from typing import Final

from trtllm_engine.build.engine_folder import CalibrationRecord, EngineFacts, RankRecord
from trtllm_engine.build.publish import engine_sink, publish, published
from trtllm_engine.build.toolchain import BuildJob, load_builder, toolchain_version
from trtllm_engine.checkpoint.folder import CONFIG, digest, locate, read_json
from trtllm_engine.checkpoint.inspect import refuse_other_formats
from trtllm_engine.checkpoint.stored_scheme import read_stored_scheme
from trtllm_engine.contract import (
    DUMMY,
    BuildArgs,
    BuildRequest,
    ContractError,
    ExitCode,
    Result,
    Step,
    Toolchain,
    engine_folder,
)
from trtllm_engine.failure import Failure
from trtllm_engine.fetch import fetched
from trtllm_engine.mounts import Mounts
from trtllm_engine.network.families import read_config
from trtllm_engine.network.rank import Rank, check_mapping
from trtllm_engine.network.scheme import check_scheme, scheme_of
from trtllm_engine.progress import Reporter

DTYPES: Final = ("float32", "float16", "bfloat16")

SHARES: Final = {
    Toolchain.TORCH: {Step.INSPECT: 2, Step.NETWORK: 1, Step.WEIGHTS: 80, Step.WRITE: 12, Step.VERIFY: 5},
    Toolchain.TENSORRT_RTX: {
        Step.INSPECT: 2,
        Step.WEIGHTS: 8,
        Step.NETWORK: 5,
        Step.BUILD: 70,
        Step.WRITE: 10,
        Step.VERIFY: 5,
    },
}
"""How the time of a build is divided among its steps, roughly; TensorRT is like TensorRT for RTX."""

CALIBRATION_SHARE: Final = 300
"""Of calibration, next to 100 for all the rest: the whole model reads hundreds of texts on the CPU."""


def reporter(request: BuildRequest, rank: int) -> Reporter:
    """Progress with the shares of the request's toolchain."""
    shares = SHARES.get(request.toolchain, SHARES[Toolchain.TENSORRT_RTX])
    if request.args.calib is not None:
        inspect = {Step.INSPECT: shares[Step.INSPECT]}
        shares = inspect | {Step.CALIBRATE: CALIBRATION_SHARE} | shares
    return Reporter(shares, rank)


def build(request: BuildRequest, rank: int, mounts: Mounts, progress: Reporter) -> Result:
    """Build and publish one rank, or find it published; returns the result of success and raises `Failure` else."""
    check_request(request, rank)
    folder, facts = mounts.store / request.output, engine_facts(request)
    with progress.during(Step.INSPECT):
        if (found := published(folder, facts, rank)) is not None:
            return result_of(found)
        builder = load_builder(request.toolchain)
        job = inspect_job(request, rank, mounts)
        builder.check(job)
    job, calibration = _calibrated(job, mounts, progress)
    with engine_sink(folder, rank) as sink:
        plan = builder.build(job, sink, progress)
        with progress.during(Step.WRITE):
            sink.sync()
        with progress.during(Step.VERIFY):
            check_digest(request, job)
            record = RankRecord(
                engine_key=request.engine_key,
                rank=rank,
                toolchain=request.toolchain,
                toolchain_version=request.toolchain_version,
                target=request.target,
                sha256=sink.sha256,
                bytes=sink.bytes,
                seconds=dict(progress.seconds),
                peak_bytes=peak_bytes(),
                plan=plan,
                calibration=calibration,
            )
            publish(folder, sink, record, facts, job.model)
    return result_of(record)


def _calibrated(job: BuildJob, mounts: Mounts, progress: Reporter) -> tuple[BuildJob, CalibrationRecord | None]:
    """The job with the scales of activations that the request asks to find, and what they were found with."""
    if job.args.calib is None or job.scheme is None:
        return job, None
    from trtllm_engine.build.calibration import calibrate  # torch takes seconds to load

    with progress.during(Step.CALIBRATE):
        found = calibrate(job.model, job.config, job.args.dtype, job.scheme, job.args.calib, mounts.models, progress)
    return dataclasses.replace(job, inputs=found.scales), found.record


def check_request(request: BuildRequest, rank: int) -> None:
    """What can be refused from the request alone: BAD_REQUEST, or UNSUPPORTED."""
    here = toolchain_version(request.toolchain)
    if request.toolchain_version != here:
        raise _bad("toolchainVersion", f"it asks for {request.toolchain_version}, but this image has {here}")
    if not 0 <= rank < request.mapping.world_size:
        raise _bad("mapping", f"rank {rank} is not below the world size {request.mapping.world_size}")
    args = request.args
    if args.dtype not in DTYPES:
        raise _bad("args.dtype", f"{args.dtype!r} is not one of {', '.join(DTYPES)}")
    if args.load_format not in (None, DUMMY):
        raise _bad("args.loadFormat", f"{args.load_format!r} is not {DUMMY!r}; leave it out for the model's weights")
    _check_calibration(args)
    for name, value in (("maxBatchSize", args.max_batch_size), ("maxInputLen", args.max_input_len)):
        if value < 1:
            raise _bad(f"args.{name}", f"{value} is below 1")
    if args.max_seq_len < args.max_input_len:
        raise _bad("args.maxSeqLen", f"{args.max_seq_len} is below maxInputLen {args.max_input_len}")
    try:
        expected = engine_folder(request.engine_key)
    except ContractError as error:
        raise _bad("engineKey", str(error)) from error
    if request.output != expected:
        raise _bad("output", f"{request.output!r} is not {expected!r}, the folder of engineKey")


def _check_calibration(args: BuildArgs) -> None:
    """Asked for exactly where activations are quantised with data."""
    scheme, calib = scheme_of(args.quant), args.calib
    needed = scheme is not None and scheme.activations and args.load_format != DUMMY
    if needed != (calib is not None):
        who = "this quantisation" if args.quant is None else args.quant.algo.value
        raise _bad("args.calib", f"{who} needs it" if needed else "nothing is calibrated; leave it out")
    if calib is None:
        return
    for name, value in (
        ("batches", calib.batches),
        ("batchSize", calib.batch_size),
        ("maxSeqLength", calib.max_seq_length),
    ):
        if value < 1:
            raise _bad(f"args.calib.{name}", f"{value} is below 1")
    if calib.seed < 0:
        raise _bad("args.calib.seed", f"{calib.seed} is below 0")


def engine_facts(request: BuildRequest) -> EngineFacts:
    return EngineFacts(
        engine_key=request.engine_key,
        model=request.model,
        model_digest=request.model_digest,
        toolchain=request.toolchain,
        toolchain_version=request.toolchain_version,
        target=request.target,
        args=request.args,
        mapping=request.mapping,
    )


def inspect_job(request: BuildRequest, rank: int, mounts: Mounts) -> BuildJob:
    """Find and understand the model; it must be the one that was asked for."""
    folder, mount = mounts.model(request.model)
    if request.model.repo is not None and fetched(folder) is None:
        raise Failure(
            ExitCode.MODEL_UNAVAILABLE, f"{folder} was not fetched, or not to its end; fetch it again", field="model"
        )
    model = locate(folder, mount)
    raw = read_json(model / CONFIG)
    refuse_other_formats(raw)
    config = read_config(raw)
    check_mapping(config, request.mapping)
    stored = None if request.args.load_format == DUMMY else read_stored_scheme(raw, model)
    if stored is not None and request.args.quant is not None:
        raise _bad("args.quant", f"the checkpoint is quantised already ({stored.method}); leave it out")
    scheme = scheme_of(request.args.quant) if stored is None else stored.scheme
    check_scheme(config, request.mapping, scheme, chosen=stored is None)
    job = BuildJob(
        config=config,
        model=model,
        args=request.args,
        target=request.target,
        rank=Rank(mapping=request.mapping, index=rank),
        scheme=scheme,
        stored=stored,
    )
    if request.args.max_seq_len > job.config.max_positions:
        raise _bad(
            "args.maxSeqLen", f"{request.args.max_seq_len} is beyond the model's {job.config.max_positions} positions"
        )
    check_digest(request, job)
    return job


def check_digest(request: BuildRequest, job: BuildJob) -> None:
    """Checked before and after the weights are read: an engine holds what its key says, or is not published."""
    if (found := digest(job.model)) != request.model_digest:
        raise Failure(
            ExitCode.CORRUPT_INPUT,
            f"the model at {job.model} has digest {found}, "
            f"but {request.model_digest} was inspected: it was changed since",
            field="modelDigest",
        )


def peak_bytes() -> int:
    """Peak resident memory of this process; Linux counts it in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def result_of(record: RankRecord) -> Result:
    return Result(
        ok=True,
        step=Step.VERIFY,
        files=1,
        bytes=record.bytes,
        digest=f"sha256:{record.sha256}",
        seconds=record.seconds,
        peak_bytes=record.peak_bytes,
    )


def _bad(name: str, message: str) -> Failure:
    return Failure(ExitCode.BAD_REQUEST, f"{name}: {message}", field=name)
