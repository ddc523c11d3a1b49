"""Fetching a hub model: pinned, resumed, verified, and forbidden things said in words that help."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.hub import HubDouble
from tests.models import tiny_llama
from trtllm_engine import fetch
from trtllm_engine.contract import ExitCode, FetchRequest, ModelSource, Result, model_folder
from trtllm_engine.failure import Failure
from trtllm_engine.mounts import Mounts
from trtllm_engine.progress import Reporter

REPO = "acme/tiny-llama"
TOKEN = "hf_secretsecretsecret"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture
def hub() -> Iterator[HubDouble]:
    with HubDouble() as double:
        yield double


def fetch_from(
    hub: HubDouble, root: Path, *, revision: str | None = None, repo: str = REPO, token: str | None = None
) -> Result:
    request = FetchRequest(model=ModelSource(repo=repo, revision=revision))
    environment = {"HF_ENDPOINT": hub.endpoint} | ({"HF_TOKEN": token} if token else {})
    return fetch.fetch(request, Mounts.below(root), fetch.reporter(request), environment)


def failure_of(hub: HubDouble, root: Path, **settings: str) -> Failure:
    with pytest.raises(Failure) as caught:
        fetch_from(hub, root, **settings)
    return caught.value


def visible(root: Path) -> list[str]:
    """Fetched models that readers see."""
    return [
        path.parent.name
        for path in (root / "cache" / "models").glob("*/*/*/.complete.json")
        if path.parent.name[0] != "."
    ]


def test_a_branch_becomes_a_commit_and_a_folder_with_the_models_files_only(
    hub: HubDouble, model: Path, tmp_path: Path
) -> None:
    repo = hub.add(REPO, model)
    result = fetch_from(hub, tmp_path, revision="main")
    folder = tmp_path / "cache" / model_folder(REPO, repo.commit)
    assert result.ok and result.facts is not None and result.facts.commit == repo.commit
    assert result.versions is not None and "torch" in result.versions
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [".complete.json", *(p.name for p in model.iterdir())]
    )
    assert all((folder / path.name).read_bytes() == path.read_bytes() for path in model.iterdir())


def test_a_model_that_is_there_is_not_downloaded_again(hub: HubDouble, model: Path, tmp_path: Path) -> None:
    hub.add(REPO, model)
    first = fetch_from(hub, tmp_path)
    hub.requests.clear()
    second = fetch_from(hub, tmp_path)
    assert hub.downloads("model.safetensors") == []
    assert second.facts == first.facts


def test_a_pinned_commit_that_is_there_needs_no_hub(hub: HubDouble, model: Path, tmp_path: Path) -> None:
    repo = hub.add(REPO, model)
    first = fetch_from(hub, tmp_path)
    hub.requests.clear()
    again = fetch_from(hub, tmp_path, revision=repo.commit)
    assert (again.facts, again.files) == (first.facts, first.files)
    assert hub.requests == []


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's client keeps what it got in chunks of 10 MB, more than the whole model here."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 500)


@pytest.mark.usefixtures("small_chunks")
def test_a_cut_download_goes_on_where_it_ended(hub: HubDouble, model: Path, tmp_path: Path) -> None:
    hub.add(REPO, model)
    hub.cut_after["model.safetensors"] = 1000
    assert fetch_from(hub, tmp_path).ok
    assert hub.downloads("model.safetensors") == [None, "bytes=1000-"]


@pytest.mark.usefixtures("small_chunks")
def test_a_pod_that_was_stopped_is_continued_by_the_next(hub: HubDouble, model: Path, tmp_path: Path) -> None:
    hub.add(REPO, model)
    request = FetchRequest(model=ModelSource(repo=REPO))
    lines: list[str] = []

    def stop_after_two_chunks(line: str) -> None:
        """One line tells the start of the file, each further one a chunk."""
        lines.extend([line] if "model.safetensors" in line else [])
        if len(lines) == 3:
            progress.stop()

    progress = Reporter(fetch.SHARES, emit=stop_after_two_chunks, clock=itertools.count(step=10).__next__)
    with pytest.raises(Failure) as caught:
        fetch.fetch(request, Mounts.below(tmp_path), progress, {"HF_ENDPOINT": hub.endpoint})
    assert caught.value.code is ExitCode.TRY_AGAIN
    assert visible(tmp_path) == []
    assert fetch_from(hub, tmp_path).ok
    assert hub.downloads("model.safetensors") == [None, "bytes=1000-"]


def test_a_folder_without_a_record_does_not_exist_and_is_replaced(hub: HubDouble, model: Path, tmp_path: Path) -> None:
    repo = hub.add(REPO, model)
    half = tmp_path / "cache" / model_folder(REPO, repo.commit)
    half.mkdir(parents=True)
    (half / "config.json").write_text("half")
    assert fetch_from(hub, tmp_path).ok
    assert (half / "config.json").read_bytes() == (model / "config.json").read_bytes()


def test_other_bytes_than_the_hub_lists_are_never_visible_and_fetched_anew(
    hub: HubDouble, model: Path, tmp_path: Path
) -> None:
    repo = hub.add(REPO, model)
    right = repo.files["model.safetensors"]
    hub.lie_about["model.safetensors"] = right[:-1] + bytes([right[-1] ^ 1])
    failure = failure_of(hub, tmp_path)
    assert (failure.code, failure.field) == (ExitCode.TRY_AGAIN, "model.safetensors")
    assert visible(tmp_path) == []
    hub.lie_about.clear()
    assert fetch_from(hub, tmp_path).ok
    assert visible(tmp_path) == [repo.commit]


def test_two_fetches_at_once_download_once_and_both_succeed(hub: HubDouble, model: Path, tmp_path: Path) -> None:
    hub.add(REPO, model)
    results: list[Result] = []
    threads = [threading.Thread(target=lambda: results.append(fetch_from(hub, tmp_path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert [result.ok for result in results] == [True, True]
    assert len(hub.downloads("model.safetensors")) == 1


def test_a_gated_repo_names_the_field_that_carries_a_token(hub: HubDouble, model: Path, tmp_path: Path) -> None:
    hub.add(REPO, model, token=TOKEN, gated=True)
    failure = failure_of(hub, tmp_path)
    assert (failure.code, failure.field) == (ExitCode.MODEL_UNAVAILABLE, "hubTokenSecretRef")
    assert "gated" in failure.message and "hubTokenSecretRef" in failure.message
    assert fetch_from(hub, tmp_path, token=TOKEN).ok


@pytest.mark.parametrize(
    "settings, code, field",
    [
        ({"repo": "acme/nothing", "token": TOKEN}, ExitCode.MODEL_UNAVAILABLE, "model"),
        ({"repo": "acme/nothing"}, ExitCode.MODEL_UNAVAILABLE, "hubTokenSecretRef"),
        ({"revision": "no-such-branch"}, ExitCode.MODEL_UNAVAILABLE, "model.revision"),
        ({"repo": "../../etc"}, ExitCode.BAD_REQUEST, "model.repo"),
    ],
)
def test_what_is_not_there_is_told_apart(
    settings: dict[str, str], code: ExitCode, field: str, hub: HubDouble, model: Path, tmp_path: Path
) -> None:
    hub.add(REPO, model)
    failure = failure_of(hub, tmp_path, **settings)
    assert (failure.code, failure.field) == (code, field)


def test_a_hub_that_is_down_is_worth_another_try(model: Path, tmp_path: Path) -> None:
    with HubDouble() as double:
        double.add(REPO, model)
    assert failure_of(double, tmp_path).code is ExitCode.TRY_AGAIN


def test_a_repo_without_safetensors_is_unsupported(hub: HubDouble, model: Path, tmp_path: Path) -> None:
    repo = hub.add(REPO, model)
    repo.files = {name: data for name, data in repo.files.items() if not name.endswith(".safetensors")}
    assert failure_of(hub, tmp_path).code is ExitCode.UNSUPPORTED


def test_the_token_is_in_no_log_record_and_no_file(
    hub: HubDouble, model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    hub.add(REPO, model, token=TOKEN)
    caplog.set_level("DEBUG")
    hub.cut_after["model.safetensors"] = 1000
    result = fetch_from(hub, tmp_path, token=TOKEN)
    failure = failure_of(hub, tmp_path, token=TOKEN + "x")
    output = capfd.readouterr()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for text in (output.out, output.err, caplog.text, result.to_json(), failure.message):
        assert TOKEN not in text
    assert all(TOKEN.encode() not in data for data in written)


def test_a_model_on_a_volume_is_only_inspected(model: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    model.rename(tmp_path / "models" / "tiny")
    request = FetchRequest(model=ModelSource(path="/models/tiny"))
    try:
        result = fetch.fetch(request, Mounts.below(tmp_path), fetch.reporter(request), {})
    finally:
        (tmp_path / "models" / "tiny").rename(model)
    assert result.facts is not None and (result.facts.family, result.facts.commit) == ("llama", None)
    assert not (tmp_path / "cache").exists()
