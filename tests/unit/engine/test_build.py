"""Building and publishing: a verified engine or none, whatever happens on the way."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.models import TINY_FAMILIES, tiny_llama
from tests.unit.engine.conftest import Workspace
from trtllm_engine.build import publish
from trtllm_engine.build.engine_folder import read_engine, read_record
from trtllm_engine.build.plan_header import parse_plan_header
from trtllm_engine.build.verify import verify
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.contract import (
    DUMMY,
    RESULT_LIMIT,
    BuildRequest,
    ExitCode,
    Mapping,
    ModelSource,
    Result,
    Target,
    Toolchain,
    model_folder,
    rank_file,
    rank_record,
)
from trtllm_engine.failure import Failure
from trtllm_engine.fetch import FetchRecord
from trtllm_engine.network.parameters import rank_parameters
from trtllm_engine.network.rank import Rank

ENGINE, RECORD = rank_file(0), rank_record(0)


def failure_of(work: Callable[[], object]) -> Failure:
    with pytest.raises(Failure) as caught:
        work()
    return caught.value


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def run_cli(workspace: Workspace, request: BuildRequest, **environment: str) -> tuple[int, Result, str]:
    """Exit code, result, and standard output of a build in a process of its own."""
    process = start_cli(workspace, request, **environment)
    output, errors = process.communicate(timeout=300)
    return process.returncode, Result.from_json((workspace.root / "result.json").read_text()), output + errors


def start_cli(workspace: Workspace, request: BuildRequest, **environment: str) -> subprocess.Popen[str]:
    (workspace.root / "request.json").write_text(request.to_json())
    command = [sys.executable, "-m", "trtllm_engine", "build", "--root", str(workspace.root)]
    command += ["--request", str(workspace.root / "request.json"), "--result", str(workspace.root / "result.json")]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


@pytest.mark.parametrize("toolchain", [Toolchain.TORCH, Toolchain.TENSORRT_RTX])
def test_a_tiny_model_builds_without_a_gpu_and_passes_verification(toolchain: Toolchain, workspace: Workspace) -> None:
    result = workspace.build(workspace.request(toolchain))
    verify(workspace.engine, [0])
    record = read_record(workspace.engine, 0)
    assert result.ok and result.digest == f"sha256:{record.sha256}"
    assert result.bytes == (workspace.engine / ENGINE).stat().st_size
    engine = read_engine(workspace.engine)
    assert engine.config.num_kv_heads == 2
    assert engine.facts.args == workspace.request(toolchain).args
    assert {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} <= names(workspace.engine)
    assert not [name for name in names(workspace.engine) if name.endswith(".tmp")]


def test_a_plan_is_for_the_target_holds_the_weights_and_has_two_profiles(workspace: Workspace) -> None:
    workspace.build(
        workspace.request(Toolchain.TENSORRT_RTX, dtype="bfloat16", target=Target(compute_capability="12.0"))
    )
    plan, record = (workspace.engine / ENGINE).read_bytes(), read_record(workspace.engine, 0)
    header = parse_plan_header(plan)
    assert (header.length, header.targets) == (len(plan), 16)
    assert record.plan["profiles"] == 2
    assert record.plan["inputs"] == 5 + 2 * 2 and record.plan["outputs"] == 1 + 2 * 2
    assert len(plan) > record.plan["weightBytes"]
    assert plan.count(b"kvcache_update(past_key_0") > 0


PLANS: dict[str, tuple[str, Mapping, tuple[int, ...]]] = {
    "float16": ("float16", Mapping(), (0,)),
    "bfloat16, two stages of two": ("bfloat16", Mapping(tp=2, pp=2), (0, 3)),
}
"""Tensor ranks of one stage differ in weights only, so one of each stage is enough."""


@pytest.mark.parametrize("family", TINY_FAMILIES)
@pytest.mark.parametrize("plan", PLANS)
def test_plans_build_for_every_family(family: str, plan: str, tmp_path: Path) -> None:
    dtype, mapping, ranks = PLANS[plan]
    workspace = Workspace(tmp_path)
    tiny_llama(workspace.model, vocab_size=320, **TINY_FAMILIES[family])
    request = workspace.request(Toolchain.TENSORRT_RTX, dtype=dtype, mapping=mapping)
    for rank in ranks:
        assert workspace.build(request, rank).ok
        built = (workspace.engine / rank_file(rank)).read_bytes()
        first, last = rank == 0, rank == mapping.world_size - 1
        assert (b"hidden_in" in built, b"hidden_out" in built) == (not first, not last)
        assert (b"world_size = 2" in built, b"comm_allreduce" in built) == (mapping.tp == 2,) * 2
        assert (b"comm_allgather" in built) == (mapping.tp == 2 and last)
    verify(workspace.engine, ranks)


def test_ranks_are_published_side_by_side_and_in_any_order(workspace: Workspace) -> None:
    """Their weights, put together, are one rank's."""
    mapping = Mapping(tp=2, pp=2)
    request = workspace.request(mapping=mapping)
    results = [workspace.build(request, rank) for rank in (3, 1, 0, 2)]
    assert all(result.ok for result in results)
    verify(workspace.engine, range(4))
    assert names(workspace.engine) >= {name for rank in range(4) for name in (rank_file(rank), rank_record(rank))}
    config = read_engine(workspace.engine).config
    whole = dict(load_weights(workspace.model, config, torch.float32))
    for index in range(4):
        tensors = load_file(workspace.engine / rank_file(index))
        parameters = list(rank_parameters(config, Rank(mapping=mapping, index=index)))
        assert {parameter.name for parameter in parameters} == set(tensors)
        for parameter in parameters:
            part = tuple(slice(positions.start, positions.stop) for positions in parameter.part)
            assert torch.equal(tensors[parameter.name], whole[parameter.name][part])


def test_a_rank_is_found_before_rank_0_has_published_what_is_common(workspace: Workspace) -> None:
    request = workspace.request(mapping=Mapping(tp=2))
    first = workspace.build(request, 1)
    before = (workspace.engine / rank_file(1)).stat()
    assert "config.json" not in names(workspace.engine)
    assert workspace.build(request, 1) == first
    assert (workspace.engine / rank_file(1)).stat().st_mtime_ns == before.st_mtime_ns


def test_the_rank_is_the_index_of_the_job(workspace: Workspace) -> None:
    code, result, output = run_cli(workspace, workspace.request(mapping=Mapping(pp=2)), JOB_COMPLETION_INDEX="1")
    assert (code, result.ok) == (0, True)
    assert {"rank0001.engine", "rank0001.json", "rank0001.result.json"} <= names(workspace.engine)
    assert all(json.loads(line)["rank"] == 1 for line in output.splitlines() if line.startswith("{"))


@pytest.mark.parametrize("toolchain", [Toolchain.TORCH, Toolchain.TENSORRT_RTX])
def test_random_weights_need_no_checkpoint(toolchain: Toolchain, workspace: Workspace) -> None:
    """Ranks agree about what both hold, and differ in what is their own."""
    (workspace.model / "model.safetensors").unlink()
    request = workspace.request(toolchain, load_format=DUMMY, mapping=Mapping(tp=2))
    assert all(workspace.build(request, rank).ok for rank in (0, 1))
    verify(workspace.engine, [0, 1])
    if toolchain is Toolchain.TORCH:
        first, second = (load_file(workspace.engine / rank_file(rank)) for rank in (0, 1))
        assert torch.equal(first["lm_head"], second["lm_head"])  # a vocabulary that two ranks cannot split
        assert not torch.equal(first["layers.0.gate"], second["layers.0.gate"])


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def edit_record(folder: Path, **changes: object) -> None:
    record = json.loads((folder / RECORD).read_text())
    (folder / RECORD).write_text(json.dumps(record | changes))


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "one byte altered": (lambda folder: flip(folder / ENGINE), ENGINE),
    "cut by one byte": (lambda folder: cut(folder / ENGINE), ENGINE),
    "engine gone": (lambda folder: (folder / ENGINE).unlink(), ENGINE),
    "record gone": (lambda folder: (folder / RECORD).unlink(), RECORD),
    "record cut": (lambda folder: cut(folder / RECORD), RECORD),
    "record with an unknown field": (lambda folder: edit_record(folder, extra=1), RECORD),
    "record of another rank": (lambda folder: edit_record(folder, rank=1), RECORD),
    "record of another key": (lambda folder: edit_record(folder, engineKey="other"), ENGINE),
    "config gone": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "config cut": (lambda folder: cut(folder / "config.json"), "config.json"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_engine_fails_verification_and_names_the_file(name: str, workspace: Workspace) -> None:
    workspace.build(workspace.request())
    damage, file = DAMAGES[name]
    damage(workspace.engine)
    failure = failure_of(lambda: verify(workspace.engine, [0]))
    assert (failure.code, failure.field) == (ExitCode.CORRUPT_INPUT, file)


def test_a_plan_for_another_gpu_fails_verification_though_its_hash_is_right(workspace: Workspace) -> None:
    workspace.build(workspace.request(Toolchain.TENSORRT_RTX))
    other = {"computeCapability": "8.6"}
    edit_record(workspace.engine, target=other)
    config = json.loads((workspace.engine / "config.json").read_text())
    config["trtllm_engine"]["target"] = other
    (workspace.engine / "config.json").write_text(json.dumps(config))
    failure = failure_of(lambda: verify(workspace.engine, [0]))
    assert "it is for compute capability 8.9, expected 8.6" in failure.message


def test_a_published_rank_is_found_and_not_built_again(workspace: Workspace) -> None:
    first = workspace.build(workspace.request())
    before = (workspace.engine / ENGINE).stat()
    assert workspace.build(workspace.request()) == first
    assert (workspace.engine / ENGINE).stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("name", [name for name in DAMAGES if name != "record of another key"])
def test_a_damaged_engine_is_built_again(name: str, workspace: Workspace) -> None:
    first = workspace.build(workspace.request())
    DAMAGES[name][0](workspace.engine)
    assert workspace.build(workspace.request()).digest == first.digest
    verify(workspace.engine, [0])


REFUSED: dict[str, tuple[Toolchain, dict[str, object], ExitCode, str, str]] = {
    "another toolchain version": (
        Toolchain.TORCH,
        {"toolchain_version": "torch-1.0.0+engine-0.0.1"},
        ExitCode.BAD_REQUEST,
        "toolchainVersion",
        "torch-1.0.0+engine-0.0.1",
    ),
    "another digest": (
        Toolchain.TORCH,
        {"model_digest": "sha256:0"},
        ExitCode.CORRUPT_INPUT,
        "modelDigest",
        "sha256:0",
    ),
    "a folder that is not the key's": (
        Toolchain.TORCH,
        {"output": "engines/../x"},
        ExitCode.BAD_REQUEST,
        "output",
        "engines/key1",
    ),
    "a key that is a path": (Toolchain.TORCH, {"engine_key": "../x"}, ExitCode.BAD_REQUEST, "engineKey", "'../x'"),
    "an unknown way to load": (
        Toolchain.TORCH,
        {"load_format": "fast"},
        ExitCode.BAD_REQUEST,
        "args.loadFormat",
        "is not 'dummy'",
    ),
    "an unknown dtype": (Toolchain.TORCH, {"dtype": "int8"}, ExitCode.BAD_REQUEST, "args.dtype", "float16"),
    "more input than sequence": (Toolchain.TORCH, {"max_input_len": 64}, ExitCode.BAD_REQUEST, "args.maxSeqLen", "64"),
    "more positions than the model has": (
        Toolchain.TORCH,
        {"max_seq_len": 4096},
        ExitCode.BAD_REQUEST,
        "args.maxSeqLen",
        "128",
    ),
    "heads that do not divide": (
        Toolchain.TORCH,
        {"mapping": Mapping(tp=3)},
        ExitCode.UNSUPPORTED,
        "mapping",
        "2 key/value heads neither divide by tp 3",
    ),
    "an MLP that does not divide": (
        Toolchain.TORCH,
        {"mapping": Mapping(tp=32)},
        ExitCode.UNSUPPORTED,
        "mapping",
        "attention heads: 4 does not divide by 32; it divides by 1, 2, 4",
    ),
    "more stages than layers": (
        Toolchain.TORCH,
        {"mapping": Mapping(pp=3)},
        ExitCode.UNSUPPORTED,
        "mapping",
        "2 layers do not make 3",
    ),
    "context parallelism": (
        Toolchain.TORCH,
        {"mapping": Mapping(cp=2)},
        ExitCode.UNSUPPORTED,
        "mapping",
        "use tp or pp",
    ),
    "expert sizes that are not tp": (
        Toolchain.TORCH,
        {"mapping": Mapping(tp=2, moe_tp=2, moe_ep=2)},
        ExitCode.UNSUPPORTED,
        "mapping",
        "2 * 2 must make tp 2",
    ),
    "tensor parallelism where TensorRT has none": (
        Toolchain.TENSORRT_RTX,
        {"target": Target(compute_capability="7.5"), "dtype": "float16", "mapping": Mapping(tp=2)},
        ExitCode.UNSUPPORTED,
        "mapping",
        "use pipeline parallelism",
    ),
    "a GPU that RTX does not know": (
        Toolchain.TENSORRT_RTX,
        {"target": Target(compute_capability="9.0")},
        ExitCode.UNSUPPORTED,
        "target.computeCapability",
        "7.5, 8.0, 8.6, 8.9, 12.0, 12.1",
    ),
    "no GPU named": (
        Toolchain.TENSORRT_RTX,
        {"target": Target()},
        ExitCode.BAD_REQUEST,
        "target.computeCapability",
        "8.9",
    ),
    "bfloat16 where the GPU has none": (
        Toolchain.TENSORRT_RTX,
        {"target": Target(compute_capability="7.5"), "dtype": "bfloat16"},
        ExitCode.UNSUPPORTED,
        "args.dtype",
        "use float16",
    ),
    "float32 where RTX has no products": (
        Toolchain.TENSORRT_RTX,
        {"target": Target(compute_capability="7.5"), "dtype": "float32"},
        ExitCode.UNSUPPORTED,
        "args.dtype",
        "use float16",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_cannot_be_met_says_which_field_and_what_is_allowed(name: str, workspace: Workspace) -> None:
    toolchain, changes, code, field, allowed = REFUSED[name]
    failure = failure_of(lambda: workspace.build(workspace.request(toolchain, **changes)))
    assert (failure.code, failure.field) == (code, field)
    assert allowed in failure.message
    assert ENGINE not in names(workspace.engine)


def test_a_hub_model_is_built_from_the_cache_once_its_record_is_there(workspace: Workspace) -> None:
    source = ModelSource(repo="acme/tiny", revision="0" * 40)
    cached = workspace.root / "cache" / model_folder("acme/tiny", "0" * 40)
    shutil.copytree(workspace.model, cached)
    request = workspace.request(model=source)
    failure = failure_of(lambda: workspace.build(request))
    assert (failure.code, failure.field) == (ExitCode.MODEL_UNAVAILABLE, "model")
    record = FetchRecord(
        repo="acme/tiny", commit="0" * 40, files={"config.json": (cached / "config.json").stat().st_size}
    )
    (cached / ".complete.json").write_text(record.to_json())
    assert workspace.build(request).ok


def test_a_toolchain_that_is_not_in_the_image_is_unsupported(workspace: Workspace) -> None:
    request = dataclasses.replace(workspace.request(), toolchain=Toolchain.TENSORRT_LLM)
    failure = failure_of(lambda: workspace.build(request))
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "toolchain")
    assert "it has torch, tensorrt_rtx" in failure.message


def test_a_model_that_changes_during_the_build_is_not_published(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = workspace.request()
    sync = publish.HashingSink.sync

    def change_the_model_then_sync(sink: publish.HashingSink) -> None:
        with (workspace.model / "generation_config.json").open("a") as file:
            file.write("\n")
        sync(sink)

    monkeypatch.setattr(publish.HashingSink, "sync", change_the_model_then_sync)
    failure = failure_of(lambda: workspace.build(request))
    assert (failure.code, failure.field) == (ExitCode.CORRUPT_INPUT, "modelDigest")
    assert names(workspace.engine) == set()


def test_a_full_volume_is_named_and_leaves_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("trtllm_engine.build.publish.os.fsync", full)
    failure = failure_of(lambda: workspace.build(workspace.request()))
    assert failure.code is ExitCode.NO_SPACE
    assert "is full" in failure.message and "GiB free" in failure.message
    assert names(workspace.engine) == set()


def test_an_error_that_the_library_only_logs_fails_the_build(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head size here is what a fused kernel cannot do, and without `decomposable` RTX gives up with a log line."""
    from trtllm_engine.network import tensorrt_ops

    original = tensorrt_ops.TensorRtOps.attend

    def attend_undecomposed(self: tensorrt_ops.TensorRtOps, *arguments: object) -> object:
        context = original(self, *arguments)  # type: ignore[arg-type]
        trt, network = self._trt, self._network
        for index in range(network.num_layers):
            layer = network.get_layer(index)
            if layer.type == trt.LayerType.ATTENTION_INPUT:
                layer.__class__ = trt.IAttentionInputLayer
                layer.attention.decomposable = False
        return context

    monkeypatch.setattr(tensorrt_ops.TensorRtOps, "attend", attend_undecomposed)
    failure = failure_of(lambda: workspace.build(workspace.request(Toolchain.TENSORRT_RTX)))
    assert failure.code is ExitCode.BUILDER_ERROR
    assert failure.log
    assert names(workspace.engine) == set()


def test_a_full_volume_in_the_middle_of_a_plan_is_no_builder_error(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(sink: publish.HashingSink, data: bytes | memoryview) -> int:
        with publish.naming_full_volume(sink.path.parent):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(publish.HashingSink, "write", full)
    failure = failure_of(lambda: workspace.build(workspace.request(Toolchain.TENSORRT_RTX)))
    assert failure.code is ExitCode.NO_SPACE


def test_the_pods_protocol_progress_on_stdout_and_a_small_result(workspace: Workspace) -> None:
    code, result, output = run_cli(workspace, workspace.request())
    assert (code, result.ok, result.code) == (0, True, 0)
    progress = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [line["percent"] for line in progress] == sorted(line["percent"] for line in progress)
    assert progress[-1]["percent"] == 100.0
    assert (workspace.engine / "rank0000.result.json").read_text() == result.to_json()


def test_a_result_fits_however_long_its_texts_are(workspace: Workspace) -> None:
    failure = Failure(ExitCode.BUILDER_ERROR, "ü" * 9000, field="x" * 9000, log="\n" * 9000)
    assert len(failure.result(None).to_json().encode()) <= RESULT_LIMIT


def test_a_request_of_another_contract_is_refused(workspace: Workspace) -> None:
    code, result, _ = run_cli(workspace, dataclasses.replace(workspace.request(), contract=99))
    assert (code, result.code, result.field) == (2, 2, "contract")


def test_a_killed_build_leaves_nothing_visible_and_the_next_one_cleans_up(workspace: Workspace) -> None:
    process = start_cli(workspace, workspace.request(Toolchain.TENSORRT_RTX))
    assert process.stdout is not None
    while '"step":"build"' not in (line := process.stdout.readline()):
        assert line, "the build ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    left = names(workspace.engine)
    assert len(left) == 1 and all(name.startswith(f".{ENGINE}.") for name in left)
    workspace.build(workspace.request(Toolchain.TENSORRT_RTX))
    verify(workspace.engine, [0])
    assert not left & names(workspace.engine)


def test_a_terminated_build_asks_for_another_try_and_removes_its_files(workspace: Workspace) -> None:
    process = start_cli(workspace, workspace.request(Toolchain.TENSORRT_RTX))
    assert process.stdout is not None
    while '"step":"build"' not in (line := process.stdout.readline()):
        assert line, "the build ended before it could be terminated"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    result = Result.from_json((workspace.root / "result.json").read_text())
    assert (process.returncode, result.code) == (75, 75)
    assert names(workspace.engine) == {"rank0000.result.json"}


def test_a_living_writers_file_is_not_taken_for_a_leftover(workspace: Workspace) -> None:
    with publish.engine_sink(workspace.engine, 0) as sink:
        sink.write(b"half")
        publish.remove_leftovers(workspace.engine, 0)
        assert sink.path.exists()
    assert not sink.path.exists()
