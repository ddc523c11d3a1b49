"""Publishing one rank's engine so that readers see a verified file or none.

Everything is written to a temporary name beside its place, synced, checked and renamed; the record comes last. A
temporary file is locked while its writer lives, so what a killed writer left behind can be told apart and removed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from trtllm_engine.build.engine_folder import EngineFacts, RankRecord, engine_config, read_engine
from trtllm_engine.build.verify import belongs, check_engine_file, sha256_of, verify_rank
from trtllm_engine.checkpoint.folder import CONFIG, read_json
from trtllm_engine.contract import ContractError, ExitCode, rank_file, rank_record
from trtllm_engine.failure import Failure

PROCESS: Final = secrets.token_hex(4)
"""In the names of this process's temporary files, unlike that of any other on the volume."""

TEMPORARY_SUFFIX: Final = ".tmp"

COMPANIONS: Final = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
)
"""What serving reads beside the engine; copied from the model so that an engine needs no model to be served."""


class Sink(Protocol):
    """Where a toolchain writes its engine."""

    def write(self, data: bytes | memoryview) -> int:
        """Append; returns the number of bytes. Raises NO_SPACE when the volume is full."""


class HashingSink:
    """A `Sink` that hashes what it writes to a temporary file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("xb")
        self._hash = hashlib.sha256()
        self.bytes = 0
        _lock(self._file.fileno())

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes | memoryview) -> int:
        with naming_full_volume(self.path.parent):
            self._file.write(data)
        self._hash.update(data)
        self.bytes += len(data)
        return len(data)

    def sync(self) -> None:
        """Everything written is on the volume."""
        with naming_full_volume(self.path.parent):
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def published(folder: Path, facts: EngineFacts, rank: int) -> RankRecord | None:
    """The record of a rank that is there already, whole and for the same request; None if it must be built."""
    try:
        record = verify_rank(folder, rank)
        # Rank 0 publishes what is common to all, perhaps later than the others.
        same = read_engine(folder).facts == facts if rank == 0 else belongs(record, facts)
    except (Failure, ContractError):
        return None
    return record if same else None


@contextmanager
def engine_sink(folder: Path, rank: int) -> Iterator[HashingSink]:
    """A temporary file for a rank's engine; gone at the end unless `publish` gave it its name."""
    with naming_full_volume(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder, rank)
        sink = HashingSink(_temporary(folder / rank_file(rank)))
    try:
        yield sink
    finally:
        sink.close()
        sink.path.unlink(missing_ok=True)


def publish(folder: Path, sink: HashingSink, record: RankRecord, facts: EngineFacts, model: Path) -> None:
    """Make a rank visible: sync, read back and check, rename, companions and `config.json` (rank 0), record.

    Raises CORRUPT_INPUT if what was written cannot be read back or is no engine, NO_SPACE if the volume is full.
    """
    sink.sync()
    if sink.path.stat().st_size != record.bytes or sha256_of(sink.path) != record.sha256:
        raise Failure(
            ExitCode.CORRUPT_INPUT,
            f"{folder}: what was written cannot be read back: the volume is at fault",
            field="output",
        )
    check_engine_file(sink.path, record, record.rank)
    sink.path.replace(folder / rank_file(record.rank))
    if record.rank == 0:
        for name in COMPANIONS:
            if (model / name).is_file():
                write_atomically(folder / name, (model / name).read_bytes())
        config = engine_config(read_json(model / CONFIG), facts)
        write_atomically(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True).encode())
    write_atomically(folder / rank_record(record.rank), record.to_json().encode())


def write_atomically(path: Path, data: bytes) -> None:
    """Readers see the old bytes or the new ones, also after a power cut."""
    temporary = _temporary(path)
    try:
        with naming_full_volume(path.parent):
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path, rank: int) -> None:
    """Remove what dead writers of this rank left; files of a living one stay."""
    for path in folder.glob(f".{rank_file(rank)}.*{TEMPORARY_SUFFIX}"):
        with path.open("rb") as file:
            if _lock(file.fileno()):
                path.unlink(missing_ok=True)


def remove_own_temporaries(folder: Path) -> None:
    """For a process that must end while a thread of it is still writing."""
    for path in folder.glob(f".*.{PROCESS}{TEMPORARY_SUFFIX}"):
        path.unlink(missing_ok=True)


@contextmanager
def naming_full_volume(folder: Path) -> Iterator[None]:
    """Turn "no space left" and "quota exceeded" into NO_SPACE with the volume's name and what it has."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Failure(
            ExitCode.NO_SPACE,
            f"the volume at {_mount_of(folder)} is full ({_free(folder)}); enlarge its claim",
            field=str(_mount_of(folder)),
        ) from error


def _free(folder: Path) -> str:
    usage = shutil.disk_usage(_existing(folder))
    return f"{usage.free / 2**30:.1f} GiB of {usage.total / 2**30:.1f} GiB free"


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _mount_of(folder: Path) -> Path:
    path = _existing(folder).resolve()
    while not path.is_mount() and path != path.parent:
        path = path.parent
    return path


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{PROCESS}{TEMPORARY_SUFFIX}")


def _lock(descriptor: int) -> bool:
    """Whether the lock was taken; a volume without locks counts as taken by another, so nothing is removed there."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
