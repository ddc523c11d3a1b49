"""`trtllm-engine`: what the pods run, and what a person runs to look at a model or an engine.

Standard output carries progress lines, standard error everything else. The result goes to the termination message
where there is one, to standard output where there is none, and whole to the engine's folder.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from trtllm_engine.build.publish import remove_own_temporaries, write_atomically
from trtllm_engine.contract import (
    CONTRACT,
    REQUEST_FILE,
    RESULT_FILE,
    BuildRequest,
    ContractError,
    ExitCode,
    FetchRequest,
    Result,
    ServeRequest,
    Step,
    rank_record,
)
from trtllm_engine.failure import Failure
from trtllm_engine.mounts import Mounts
from trtllm_engine.progress import Reporter, stopped

Request = TypeVar("Request", FetchRequest, BuildRequest, ServeRequest)

POLL_SECONDS: Final = 0.2
"""How soon a signal is noticed."""
STOP_SECONDS: Final = 5.0
"""How long a stopped step may clean up; below the 30 s after which a pod is killed."""

HEALING: Final = frozenset(
    {errno.ESTALE, errno.EIO, errno.EAGAIN, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.ENETUNREACH}
    | {errno.EHOSTUNREACH, errno.EPIPE, errno.EBUSY, errno.ENOLCK}
)
"""Errors of volumes and networks that another try may not meet."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit code of the contract."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trtllm-engine",
        description="Fetch and inspect models, build TensorRT engines, verify and serve them.",
        epilog="exit codes: 0 done, 2 bad request, 3 unsupported, 4 model missing or forbidden, 5 no space, "
        "6 corrupt input, 7 builder error, 75 try again",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, command: Callable[[argparse.Namespace], int], help: str, *, request: bool
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        sub.set_defaults(command=command)
        if request:
            sub.add_argument(
                "--request", type=Path, default=Path(REQUEST_FILE), help="request file (default: %(default)s)"
            )
            sub.add_argument(
                "--result", type=Path, default=Path(RESULT_FILE), help="where the result goes (default: %(default)s)"
            )
            sub.add_argument(
                "--root",
                type=Path,
                default=Path("/"),
                help="folder that holds models/, cache/ and store/ (default: %(default)s)",
            )
        return sub

    add("fetch", _fetch, "bring a hub model into the cache, or inspect one on a volume", request=True)
    build = add("build", _build, "build and publish the engine of one rank", request=True)
    build.add_argument("--rank", type=int, default=None, help="rank to build (default: $JOB_COMPLETION_INDEX, or 0)")
    add("serve", _serve, "serve an engine with the OpenAI protocol", request=True)
    inspect = add("inspect", _inspect, "print what a model's folder says about itself, as JSON", request=False)
    inspect.add_argument("path", type=Path, metavar="PATH", help="folder with config.json and safetensors")
    verify = add("verify", _verify, "check every rank of an engine's folder, byte for byte", request=False)
    verify.add_argument("folder", type=Path, metavar="FOLDER", help="folder with rank0000.engine")
    return parser


def _fetch(options: argparse.Namespace) -> int:
    from trtllm_engine import fetch

    def work(run: _Run) -> Result:
        request = _read_request(FetchRequest, options.request)
        run.progress = fetch.reporter(request)
        return fetch.fetch(request, Mounts.below(options.root), run.progress)

    return _Run(options.result).main(work)


def _build(options: argparse.Namespace) -> int:
    from trtllm_engine.build import job

    rank = int(os.environ.get("JOB_COMPLETION_INDEX", "0")) if options.rank is None else options.rank

    def work(run: _Run) -> Result:
        request = _read_request(BuildRequest, options.request)
        mounts = Mounts.below(options.root)
        job.check_request(request, rank)
        run.whole_result = mounts.store / request.output / rank_record(rank).replace(".json", ".result.json")
        run.progress = job.reporter(request, rank)
        return job.build(request, rank, mounts, run.progress)

    return _Run(options.result).main(work)


def _serve(options: argparse.Namespace) -> int:
    """The server has its own signal handling; here only a failure becomes a result."""
    from trtllm_engine.serve.main import serve

    run = _Run(options.result)
    try:
        request = _read_request(ServeRequest, options.request)
        return serve(request, store=Mounts.below(options.root).store)
    except Exception as error:
        return run.finish(_failed(error, None))


def _inspect(options: argparse.Namespace) -> int:
    from trtllm_engine.checkpoint.folder import locate
    from trtllm_engine.checkpoint.inspect import inspect_model

    try:
        facts = inspect_model(locate(options.path, Path(options.path.resolve().anchor)))
    except Failure as failure:
        return _say(failure)
    print(json.dumps(facts.to_dict(), indent=2))
    return int(ExitCode.DONE)


def _verify(options: argparse.Namespace) -> int:
    from trtllm_engine.build.engine_folder import read_engine, read_record
    from trtllm_engine.build.verify import verify

    try:
        world = read_engine(options.folder).facts.mapping.world_size
    except Failure as failure:
        return _say(failure)
    code = 0
    for rank in range(world):
        try:
            verify(options.folder, [rank])
            record = read_record(options.folder, rank)
            print(f"rank {rank}: ok, {record.bytes} bytes, sha256 {record.sha256}")
        except Failure as failure:
            print(f"rank {rank}: {failure.message}")
            code = int(failure.code)
    return code


class _Run:
    """One pod's work: it ends in a result and an exit code, whatever happens.

    The work runs in a thread of its own, so that the main thread can take SIGTERM while a builder's native code runs.
    It stops at its next progress report and cleans up; if that takes too long its temporary files are removed under it
    and the process ends.
    """

    def __init__(self, result_file: Path) -> None:
        self._result_file = result_file
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._result = Result(ok=False)
        self.progress: Reporter | None = None
        self.whole_result: Path | None = None

    def main(self, work: Callable[[_Run], Result]) -> int:
        def target() -> None:
            try:
                self._result = work(self)
            except BaseException as error:
                self._result = _failed(error, self.progress.step if self.progress else None)
            self._over.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: self._stop())
        threading.Thread(target=target, name="work", daemon=True).start()
        while not self._over.wait(timeout=POLL_SECONDS) and not self._stopped.is_set():
            pass
        if not self._over.is_set() and not self._over.wait(timeout=STOP_SECONDS):
            self._result = _failed(stopped(), self.progress.step if self.progress else None)
        code = self.finish(self._result)
        if not self._over.is_set():
            # The thread sits in native code, which would keep the process alive.
            if self.whole_result is not None:
                remove_own_temporaries(self.whole_result.parent)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code

    def _stop(self) -> None:
        self._stopped.set()
        if self.progress:
            self.progress.stop()

    def finish(self, result: Result) -> int:
        """Leave the result where it is looked for; failing to write one place spoils neither the other nor the code."""
        if not result.ok:
            print(f"failed ({ExitCode(result.code).name.lower()}): {result.message}", file=sys.stderr)
            if result.log:
                print(f"first failing line: {result.log}", file=sys.stderr)
        try:
            if self.whole_result is not None and result.code != ExitCode.NO_SPACE:
                self.whole_result.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self.whole_result, result.to_json().encode())
        except (OSError, Failure) as error:
            print(f"{self.whole_result} could not be written: {error}", file=sys.stderr)
        try:
            # The kubelet makes this file in a pod; elsewhere there is none, and none is made in /dev.
            if self._result_file.exists() or self._result_file != Path(RESULT_FILE):
                self._result_file.write_text(result.cut().to_json())
        except OSError as error:
            print(f"{self._result_file} could not be written: {error}", file=sys.stderr)
        return result.code


def _failed(error: BaseException, step: Step | None) -> Result:
    """The result of any exception; those that are not ours may be worth another try."""
    if isinstance(error, Failure):
        return error.result(step)
    traceback.print_exception(error)
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    log = f"{type(error).__name__}: {error}" + "".join(f" ({Path(f.filename).name}:{f.lineno})" for f in frame)
    healing = isinstance(error, ConnectionError | TimeoutError) or getattr(error, "errno", None) in HEALING
    code = ExitCode.TRY_AGAIN if healing else ExitCode.BUILDER_ERROR
    return Failure(code, f"{type(error).__name__}: {error}", log=log).result(step)


def _say(failure: Failure) -> int:
    print(failure.message, file=sys.stderr)
    return int(failure.code)


def _read_request(kind: type[Request], path: Path) -> Request:
    """Raises BAD_REQUEST naming the field, or the number of the contract."""
    try:
        request = kind.from_json(path.read_text())
    except OSError as error:
        raise Failure(
            ExitCode.BAD_REQUEST, f"the request {path} cannot be read: {error.strerror}", field=str(path)
        ) from error
    except ContractError as error:
        raise Failure(ExitCode.BAD_REQUEST, f"{path.name}: {error}", field=str(error).partition(":")[0]) from error
    if request.contract != CONTRACT:
        raise Failure(
            ExitCode.BAD_REQUEST,
            f"contract: the request has {request.contract}, this image speaks {CONTRACT}: "
            "operator and engine image differ too much",
            field="contract",
        )
    return request
