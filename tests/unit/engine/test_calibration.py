"""Scales of activations that the build finds itself: from texts, the same each time, and said in the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from tests.models import TINY_FAMILIES, tiny_llama
from tests.unit.engine.conftest import Workspace
from tests.unit.engine.test_packed import failure_of
from trtllm_engine.build.engine_folder import read_record
from trtllm_engine.contract import (
    DUMMY,
    CalibArgs,
    ExitCode,
    Mapping,
    QuantAlgo,
    QuantArgs,
    Target,
    Toolchain,
    rank_file,
)
from trtllm_engine.network.quantized import INPUT_SCALE, SCALES, VALUES

FP8 = QuantArgs(algo=QuantAlgo.FP8)
CALIB = CalibArgs(batches=4, batch_size=2, max_seq_length=24, seed=7)
TEXTS = ("the engine is slow", "a red token in the cache", "one two three", "model layer model layer blue fast")


def built(workspace: Workspace, rank: int = 0, **changes: Any) -> dict[str, torch.Tensor]:
    """What the engine of a rank holds."""
    assert workspace.build(workspace.request(**{"quant": FP8, "calib": CALIB, **changes}), rank).ok
    return load_file(workspace.engine / rank_file(rank))


def data_set(workspace: Workspace, name: str = "calib.jsonl", content: str | None = None) -> CalibArgs:
    lines = "\n".join(json.dumps({"text": text}) for text in TEXTS)
    (workspace.root / "models" / name).write_text(lines if content is None else content)
    return CalibArgs(batches=8, batch_size=1, max_seq_length=5, seed=0, dataset=f"/models/{name}")


@torch.inference_mode()
def largest_inputs(folder: Path, limit: int) -> dict[str, float]:
    """What every linear layer of transformers multiplies at most, over all of `TEXTS`."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    found: dict[str, float] = {}

    def hook(name: str) -> Any:
        def keep(_: object, arguments: tuple[torch.Tensor]) -> None:
            found[name] = max(found.get(name, 0.0), arguments[0].abs().max().item())

        return keep

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(hook(name))
    for text in TEXTS:
        model(torch.tensor([tokenizer.encode(text).ids[:limit]]))
    return found


def test_a_scale_is_the_largest_activation_that_transformers_sees(workspace: Workspace) -> None:
    kept = built(workspace, calib=data_set(workspace))
    expected = largest_inputs(workspace.model, 5)
    for ours, theirs in (("query", "self_attn.q_proj"), ("output", "self_attn.o_proj"), ("down", "mlp.down_proj")):
        for layer in range(2):
            scale = kept[f"layers.{layer}.{ours}{INPUT_SCALE}"].item()
            assert scale == pytest.approx(expected[f"model.layers.{layer}.{theirs}"] / 448, rel=1e-4)
    record = read_record(workspace.engine, 0).calibration
    tokenizer = Tokenizer.from_file(str(workspace.model / "tokenizer.json"))
    tokens = sum(min(5, len(tokenizer.encode(text).ids)) for text in TEXTS)
    assert record is not None and (record.samples, record.tokens) == (4, tokens)


def test_weights_become_the_nearest_numbers_of_8_bits(workspace: Workspace) -> None:
    kept = built(workspace)
    weight = load_file(workspace.model / "model.safetensors")["model.layers.1.mlp.down_proj.weight"]
    values, scales = kept["layers.1.down" + VALUES], kept["layers.1.down" + SCALES]
    assert torch.equal(scales, weight.abs().amax(dim=1, keepdim=True) / 448)
    everything = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    distance = (weight / scales).unsqueeze(-1) - everything[everything.isfinite()]
    assert torch.allclose((weight / scales - values.float()).abs(), distance.abs().amin(dim=-1), atol=1e-4)


def test_the_same_request_finds_the_same_scales_and_another_seed_other_texts(tmp_path: Path) -> None:
    engines, hashes = [], []
    few = CalibArgs(batches=1, batch_size=2, max_seq_length=24, seed=7)
    for index, seed in enumerate((7, 7, 8)):
        workspace = Workspace(tmp_path / str(index))
        tiny_llama(workspace.model)
        engines.append(built(workspace, calib=CalibArgs.from_dict(few.to_dict() | {"seed": seed})))
        record = read_record(workspace.engine, 0).calibration
        assert record is not None and record.samples == 2
        hashes.append(record.sha256)
    first, second, other = engines
    assert all(torch.equal(first[name].float(), second[name].float()) for name in first)
    assert any(not torch.equal(first[name].float(), other[name].float()) for name in first)
    assert hashes[0] == hashes[1] != hashes[2]


def test_ranks_find_the_same_scales(workspace: Workspace) -> None:
    mapping = Mapping(tp=2)
    ranks = [built(workspace, rank, mapping=mapping) for rank in range(2)]
    scales = [{name: scale for name, scale in rank.items() if name.endswith(INPUT_SCALE)} for rank in ranks]
    assert len(scales[0]) == 14 and scales[0] == scales[1]


def test_paragraphs_of_a_text_file_are_samples(workspace: Workspace) -> None:
    built(workspace, calib=data_set(workspace, "calib.txt", "the engine\nis slow\n\n\none two three\n"))
    record = read_record(workspace.engine, 0).calibration
    assert record is not None and record.samples == 2


def test_progress_is_told_before_the_weights(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    built(workspace)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    steps = list(dict.fromkeys(line["step"] for line in lines))
    assert steps[:3] == ["inspect", "calibrate", "network"]
    percents = [line["percent"] for line in lines]
    assert percents == sorted(percents) and percents[-1] == 100
    assert next(line["percent"] for line in lines if line["step"] == "calibrate") < 1


def test_a_plan_is_built_with_what_was_found(workspace: Workspace) -> None:
    target = Target(compute_capability="8.9")
    request = workspace.request(Toolchain.TENSORRT_RTX, dtype="float16", target=target, quant=FP8, calib=CALIB)
    assert workspace.build(request).ok
    assert read_record(workspace.engine, 0).calibration is not None


def test_random_weights_need_no_texts(workspace: Workspace) -> None:
    (workspace.model / "model.safetensors").unlink()
    assert "layers.0.query" + INPUT_SCALE in built(workspace, load_format=DUMMY, calib=None)


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no texts asked for": ({"calib": None}, "args.calib", "FP8 needs it"),
    "texts for nothing": ({"quant": QuantArgs(algo=QuantAlgo.W8A16)}, "args.calib", "nothing is calibrated"),
    "no batches": (
        {"calib": CalibArgs(batches=0, batch_size=1, max_seq_length=1, seed=1)},
        "args.calib.batches",
        "0 is below 1",
    ),
    "groups": ({"quant": QuantArgs(algo=QuantAlgo.FP8, group_size=64)}, "args.quant.groupSize", "leave groupSize 64"),
    "a file elsewhere": (
        {"calib": CalibArgs(batches=1, batch_size=1, max_seq_length=1, seed=1, dataset="/etc/passwd")},
        "args.calib.dataset",
        "'/etc/passwd' is no file below /models",
    ),
    "a way out": (
        {"calib": CalibArgs(batches=1, batch_size=1, max_seq_length=1, seed=1, dataset="/models/../x.txt")},
        "args.calib.dataset",
        "is no file below /models",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_calibrated_names_the_field(name: str, workspace: Workspace) -> None:
    changes, field, words = REFUSED[name]
    failure = failure_of(workspace, **{"quant": FP8, "calib": CALIB, **changes})
    assert (failure.code, failure.field) == (ExitCode.BAD_REQUEST, field)
    assert words in failure.message


def test_a_line_without_text_is_named(workspace: Workspace) -> None:
    calib = data_set(workspace, content='{"text": "the"}\n{"texts": 1}\n')
    failure = failure_of(workspace, quant=FP8, calib=calib)
    assert (failure.code, failure.field) == (ExitCode.BAD_REQUEST, "args.calib.dataset")
    assert "/models/calib.jsonl, line 2: expected an object with a string under 'text'" in failure.message


def test_a_missing_file_is_a_missing_input(workspace: Workspace) -> None:
    calib = CalibArgs(batches=1, batch_size=1, max_seq_length=1, seed=1, dataset="/models/none.txt")
    failure = failure_of(workspace, quant=FP8, calib=calib)
    assert (failure.code, failure.field) == (ExitCode.MODEL_UNAVAILABLE, "args.calib.dataset")


def test_smoothing_and_mixtures_are_refused(workspace: Workspace) -> None:
    failure = failure_of(workspace, quant=QuantArgs(algo=QuantAlgo.W8A8_SQ_PER_CHANNEL))
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "args.quant.algo")
    tiny_llama(workspace.model, **TINY_FAMILIES["mixtral"])
    failure = failure_of(workspace, quant=FP8, calib=CALIB)
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "args.quant.algo")
