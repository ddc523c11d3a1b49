"""Bringing a hub model into the namespace's cache, or looking at one that a volume holds already."""

from __future__ import annotations

import errno
import fcntl
import fnmatch
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from trtllm_engine.build.publish import naming_full_volume, write_atomically
from trtllm_engine.build.toolchain import versions
from trtllm_engine.build.verify import sha256_of
from trtllm_engine.checkpoint.folder import MODEL_FILES, locate, read_json
from trtllm_engine.checkpoint.inspect import inspect_model
from trtllm_engine.contract import (
    DUMMY,
    ContractError,
    ExitCode,
    FetchRequest,
    Message,
    ModelSource,
    Result,
    Step,
    model_folder,
)
from trtllm_engine.failure import Failure
from trtllm_engine.mounts import Mounts
from trtllm_engine.progress import Reporter

COMPLETE: Final = ".complete.json"
"""The record that makes a fetched model exist."""

SHARES: Final = {Step.FETCH: 90, Step.VERIFY: 8, Step.INSPECT: 2}
SHARES_INSPECT: Final = {Step.INSPECT: 1}

COMMIT: Final = re.compile(r"[0-9a-f]{40}")
"""A revision that can never mean anything else later."""

DEFAULT_ENDPOINT: Final = "https://huggingface.co"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """One file as the hub lists it."""

    bytes: int
    sha256: str | None = None
    """The hub tells it of large files only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRecord(Message):
    """What was fetched, in `COMPLETE`."""

    repo: str
    commit: str
    files: dict[str, int]
    """Sizes in bytes."""


@dataclass(frozen=True, slots=True)
class Hub:
    """A hub and the right to use it; the token appears in no message."""

    endpoint: str
    token: str | None

    @classmethod
    def of(cls, source: ModelSource, environment: Mapping[str, str]) -> Hub:
        """The request's endpoint, else HF_ENDPOINT, else the public hub; the token is HF_TOKEN."""
        endpoint = source.endpoint or environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
        return cls(endpoint.rstrip("/"), environment.get("HF_TOKEN") or None)


def reporter(request: FetchRequest) -> Reporter:
    return Reporter(SHARES if request.model.repo else SHARES_INSPECT)


def fetch(
    request: FetchRequest, mounts: Mounts, progress: Reporter, environment: Mapping[str, str] = os.environ
) -> Result:
    """Fetch and inspect; returns the model's facts and this image's toolchains. Raises `Failure`.

    A hub model is fetched whole also where its weights are not looked at: the cache is shared with who needs them.
    """
    source, files = request.model, None
    if (source.path is None) == (source.repo is None):
        raise Failure(ExitCode.BAD_REQUEST, "model needs either path or repo", field="model")
    if source.repo is not None:
        source, files = _fetch_repo(source, source.repo, mounts.cache, Hub.of(source, environment), progress)
    with progress.during(Step.INSPECT):
        folder, mount = mounts.model(source)
        facts = inspect_model(
            locate(folder, mount),
            commit=source.revision if source.repo else None,
            weightless=request.load_format == DUMMY,
        )
    return Result(
        ok=True,
        step=Step.INSPECT,
        files=files,
        bytes=facts.weight_bytes,
        seconds=dict(progress.seconds),
        facts=facts,
        versions=versions(),
    )


def _fetch_repo(source: ModelSource, repo: str, cache: Path, hub: Hub, progress: Reporter) -> tuple[ModelSource, int]:
    """Make the folder of the repo's commit; returns the source pinned to the commit, and how many files it has.

    A commit that is there needs no hub.
    """
    with progress.during(Step.FETCH, f"resolving {repo}"):
        if COMMIT.fullmatch(source.revision or "") and (record := fetched(_folder(cache, repo, source.revision or ""))):
            return source, len(record.files)
        commit, files = _resolve(source, repo, hub)
        pinned, folder = ModelSource(repo=repo, revision=commit, endpoint=source.endpoint), _folder(cache, repo, commit)
        with naming_full_volume(cache):
            folder.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(folder.with_name(f".{commit}.lock"), progress):
            if fetched(folder) is None:
                partial = folder.with_name(f".{commit}.partial")
                _download(repo, commit, files, hub, partial, progress)
                with progress.during(Step.VERIFY):
                    _verify(partial, files, progress)
                    sizes = {name: file.bytes for name, file in files.items()}
                    _complete(partial, folder, FetchRecord(repo=repo, commit=commit, files=sizes))
    return pinned, len(files)


def _folder(cache: Path, repo: str, commit: str) -> Path:
    try:
        return cache / model_folder(repo, commit)
    except ContractError as error:
        raise Failure(ExitCode.BAD_REQUEST, f"model.repo: {error}", field="model.repo") from error


def fetched(folder: Path) -> FetchRecord | None:
    """The record of a model that is there whole; a record that makes no sense counts as none."""
    try:
        record = FetchRecord.from_dict(read_json(folder / COMPLETE))
    except (FileNotFoundError, NotADirectoryError, Failure, ContractError):
        return None
    whole = all((folder / n).is_file() and (folder / n).stat().st_size == size for n, size in record.files.items())
    return record if whole else None


def _resolve(source: ModelSource, repo: str, hub: Hub) -> tuple[str, dict[str, HubFile]]:
    """The commit that a revision is now, and the files of it that count."""
    from huggingface_hub import HfApi

    with _naming_hub_errors(repo, source.revision, hub):
        api = HfApi(endpoint=hub.endpoint, token=hub.token or False)
        info = api.model_info(repo, revision=source.revision, files_metadata=True)
    if info.sha is None:
        raise Failure(ExitCode.TRY_AGAIN, f"{hub.endpoint} told no commit for {repo}", field="model")
    files = {
        sibling.rfilename: HubFile(bytes=sibling.size or 0, sha256=sibling.lfs.sha256 if sibling.lfs else None)
        for sibling in info.siblings or ()
        if _counts(sibling.rfilename)
    }
    if not any(name.endswith(".safetensors") for name in files):
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"{repo} at {info.sha[:12]} holds no safetensors weights; no other format is read",
            field="model",
        )
    return info.sha, files


def _download(
    repo: str, commit: str, files: Mapping[str, HubFile], hub: Hub, partial: Path, progress: Reporter
) -> None:
    """Download into `partial`, going on within the file where an earlier pod ended.

    The hub client's own download starts a file anew in every process, and shards have gigabytes; so its parts are used.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    meter = Meter(progress, sum(file.bytes for file in files.values()))
    for name, file in files.items():
        done = meter.done
        with naming_full_volume(partial.parent), _naming_hub_errors(repo, commit, hub):
            partial.mkdir(exist_ok=True)
            with (partial / name).open("ab") as target:
                if target.tell() > file.bytes:
                    target.truncate(0)
                if (have := target.tell()) < file.bytes:
                    url = hf_hub_url(repo, name, revision=commit, endpoint=hub.endpoint)
                    headers = build_hf_headers(token=hub.token or False)
                    where = get_hf_file_metadata(url, token=hub.token or False, endpoint=hub.endpoint).location
                    if urlsplit(where).netloc != urlsplit(url).netloc:
                        headers.pop("authorization", None)  # a storage host must not see the hub's token
                    http_get(
                        where,
                        target,
                        resume_size=have,
                        headers=headers,
                        expected_size=file.bytes,
                        displayed_filename=name,
                        tqdm_class=meter.bar(name),
                    )
        meter.set(done + file.bytes, name)


def _verify(partial: Path, files: Mapping[str, HubFile], progress: Reporter) -> None:
    """Compare with what the hub says; a wrong file is removed, so that the next try fetches it anew."""
    total, done = sum(record.bytes for record in files.values()) or 1, 0
    for name, record in files.items():
        path = partial / name
        size = path.stat().st_size
        if size != record.bytes or (record.sha256 is not None and sha256_of(path) != record.sha256):
            path.unlink()
            raise Failure(
                ExitCode.TRY_AGAIN,
                f"{name}: what was downloaded is not what the hub lists; it will be fetched anew",
                field=name,
            )
        done += size
        progress.at(done / total, name)


def _complete(partial: Path, folder: Path, record: FetchRecord) -> None:
    """Sync and rename. A folder without a record is what a crash between the two left, of an older layout or not: it
    is moved out of the way, since it does not exist for readers."""
    for path in partial.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    write_atomically(partial / COMPLETE, record.to_json().encode())
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)


class Meter:
    """Bytes of all files together; hands out the progress bars that the hub's client updates."""

    def __init__(self, progress: Reporter, total: int) -> None:
        self._progress = progress
        self._total = max(total, 1)
        self.done = 0

    def set(self, done: int, name: str) -> None:
        self.done = done
        self._progress.at(done / self._total, f"{name}, {done / 2**20:.0f} of {self._total / 2**20:.0f} MiB")

    def bar(self, name: str) -> Any:
        """A tqdm class that draws nothing."""
        from tqdm.std import tqdm

        meter = self

        class Bar(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                kwargs.pop("name", None)
                super().__init__(*args, **{**kwargs, "disable": True})
                meter.set(meter.done + int(kwargs.get("initial") or 0), name)

            def update(self, n: float | None = 1) -> bool | None:
                meter.set(meter.done + int(n or 0), name)
                return None

        return Bar


@contextmanager
def _only_one(lock: Path, progress: Reporter) -> Iterator[None]:
    """One fetch of a commit at a time on a volume; others wait, and then find it done.

    The lock dies with its process. A volume without locks is used as if alone.
    """
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.at(0.0, "another pod is fetching the same model")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS):
                raise
        yield


@contextmanager
def _naming_hub_errors(repo: str, revision: str | None, hub: Hub) -> Iterator[None]:
    """Say what a user can do about it."""
    from huggingface_hub import errors

    where = f"{repo}@{revision}" if revision else repo
    try:
        yield
    except errors.GatedRepoError as error:
        raise _forbidden(
            f"{where} is gated and {_who(hub)} may not read it: accept its licence on {hub.endpoint}, and"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise _missing(f"{repo} has no revision {revision!r} on {hub.endpoint}", "model.revision") from error
    except errors.RepositoryNotFoundError as error:
        if hub.token is None and _status(error) in (401, 403):
            raise _forbidden(f"{where} does not exist on {hub.endpoint}, or is private: if it is,") from error
        raise _missing(f"{where} does not exist on {hub.endpoint}, or {_who(hub)} may not see it", "model") from error
    except errors.HFValidationError as error:
        raise Failure(
            ExitCode.BAD_REQUEST, f"model.repo {repo!r} is no repository's name", field="model.repo"
        ) from error
    except errors.HfHubHTTPError as error:
        if (status := _status(error)) in (401, 403):
            raise _forbidden(f"{hub.endpoint} answered {status} for {where}:") from error
        raise _later(f"{hub.endpoint} answered {status} for {where}") from error
    except errors.LocalEntryNotFoundError as error:
        raise _later(f"{hub.endpoint} cannot be reached for {where}") from error
    except Exception as error:
        # The hub client's own connection errors belong to an HTTP library whose name changed between its versions.
        if type(error).__module__.startswith("httpx") or _is_short_download(error):
            raise _later(
                f"the connection to {hub.endpoint} broke while fetching {where}: {type(error).__name__}"
            ) from error
        raise


def _is_short_download(error: Exception) -> bool:
    """The hub client's plain OSError for a file that came shorter than announced."""
    return type(error) is OSError and error.errno is None and "Consistency check failed" in str(error)


def _later(message: str) -> Failure:
    return Failure(ExitCode.TRY_AGAIN, message, field="model")


def _status(error: Any) -> int:
    return int(error.response.status_code)


def _who(hub: Hub) -> str:
    return "a caller without a token" if hub.token is None else "the token's owner"


def _forbidden(message: str) -> Failure:
    return Failure(
        ExitCode.MODEL_UNAVAILABLE,
        f"{message} give a token that may read it in hubTokenSecretRef",
        field="hubTokenSecretRef",
    )


def _missing(message: str, name: str) -> Failure:
    return Failure(ExitCode.MODEL_UNAVAILABLE, message, field=name)


def _counts(name: str) -> bool:
    """Files at the top of the repository only, and of them what `MODEL_FILES` says."""
    return (
        "/" not in name and not name.startswith(".") and any(fnmatch.fnmatch(name, pattern) for pattern in MODEL_FILES)
    )
