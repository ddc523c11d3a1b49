"""Inspecting a checkpoint: its facts, and for every broken one the code, the file and the tensor."""

from __future__ import annotations

import dataclasses
import errno
import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models import TINY_FAMILIES, tiny_llama
from trtllm_engine.checkpoint.folder import digest, locate, model_files, read_json
from trtllm_engine.checkpoint.inspect import inspect_model
from trtllm_engine.checkpoint.safetensors_header import read_header
from trtllm_engine.checkpoint.scratch import mapped_empty
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.contract import ExitCode, Mapping, ModelSource
from trtllm_engine.failure import Failure
from trtllm_engine.mounts import Mounts
from trtllm_engine.network.families import read_config
from trtllm_engine.network.parameters import rank_parameters
from trtllm_engine.network.rank import Rank

WEIGHTS = "model.safetensors"
QUERY = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "models" / "tiny", dtype="bfloat16")


def edit_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def edit_header(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite the header of the weights, keeping the data."""
    data = (folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    raw = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(raw)) + raw + data[8 + length :])


def split_in_shards(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    parts: dict[str, list[str]] = {"a.safetensors": [], "b.safetensors": []}
    for index, name in enumerate(sorted(tensors)):
        parts["ab"[index % 2] + ".safetensors"].append(name)
    for file, names in parts.items():
        save_file({name: tensors[name] for name in names}, folder / file)
    weight_map = {name: file for file, names in parts.items() for name in names}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": weight_map}))


def edit_index(folder: Path, **changes: str) -> None:
    path = folder / f"{WEIGHTS}.index.json"
    path.write_text(json.dumps({"weight_map": json.loads(path.read_text())["weight_map"] | changes}))


def test_the_facts_of_a_checkpoint(model: Path) -> None:
    facts = inspect_model(model)
    assert (facts.format, facts.architecture, facts.family, facts.dtype) == (
        "hf",
        "LlamaForCausalLM",
        "llama",
        "bfloat16",
    )
    assert (facts.hidden_size, facts.num_layers, facts.num_attention_heads) == (64, 2, 4)
    assert (facts.num_key_value_heads, facts.head_dim, facts.tied_embeddings) == (2, 16, False)
    attention, mlp = 64 * 64 * 2 + 64 * 32 * 2, 64 * 112 * 3
    assert facts.parameters == 2 * facts.vocab_size * 64 + 2 * (attention + mlp + 2 * 64) + 64
    assert facts.weight_bytes == 2 * facts.parameters


def test_the_facts_of_a_mixture_and_of_windows(tmp_path: Path) -> None:
    mixture = inspect_model(tiny_llama(tmp_path / "a", **TINY_FAMILIES["qwen3_moe"]))
    assert (mixture.experts, mixture.experts_per_token, mixture.expert_intermediate_size) == (4, 2, 32)
    assert mixture.expert_parameters == 1 * 4 * 3 * 64 * 32
    assert (mixture.sliding_window, mixture.windowed_layers) == (None, 0)
    windowed = inspect_model(tiny_llama(tmp_path / "b", **TINY_FAMILIES["gemma3"]))
    assert (windowed.sliding_window, windowed.windowed_layers) == (5, 1)
    assert (windowed.experts, windowed.expert_parameters) == (0, 0)


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_all_tensors_of_every_family_are_counted_and_checked(family: str, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, **TINY_FAMILIES[family])
    header = read_header(folder / WEIGHTS)
    assert inspect_model(folder).parameters == sum(info.elements for info in header.tensors.values())


def test_shared_tensors_are_checked_as_a_whole(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, **TINY_FAMILIES["phi3"])
    edit_config(folder, intermediate_size=100)
    with pytest.raises(
        Failure, match=r"gate_up_proj.weight has shape \[224, 64\], but config.json makes it \[200, 64\]"
    ):
        inspect_model(folder)


@pytest.mark.parametrize("family", ["llama", "phi3", "mixtral"])
def test_ranks_read_their_slices_whichever_file_holds_them(family: str, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, vocab_size=320, **TINY_FAMILIES[family])
    config = read_config(read_json(folder / "config.json"))
    whole = dict(load_weights(folder, config, torch.float32))
    split_in_shards(folder)
    mapping = Mapping(tp=2, pp=2)
    seen: dict[str, Tensor] = {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
    for rank in (Rank(mapping=mapping, index=index) for index in range(4)):
        parts = {parameter.name: parameter for parameter in rank_parameters(config, rank)}
        for name, tensor in load_weights(folder, config, torch.float32, rank):
            assert tuple(tensor.shape) == parts[name].shape
            seen[name][tuple(slice(r.start, r.stop) for r in parts[name].part)] = tensor
    assert all(torch.equal(seen[name], tensor) for name, tensor in whole.items())


def mappings() -> list[tuple[range, str]]:
    """(addresses, file) of everything that is mapped."""
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    return [(range(*(int(end, 16) for end in fields[0].split("-"))), fields[5]) for fields in lines if len(fields) == 6]


def test_what_lies_together_stays_in_the_mapped_file(model: Path) -> None:
    """Whole tensors and a rank's rows are not copied; its columns are."""
    config = read_config(read_json(model / "config.json"))
    rank = Rank(mapping=Mapping(tp=2), index=1)
    weights = dict(load_weights(model, config, torch.bfloat16, rank))
    ours = [addresses for addresses, file in mappings() if file == str(model / WEIGHTS)]
    mapped = {name for name, tensor in weights.items() if any(tensor.data_ptr() in addresses for addresses in ours)}
    columns = {name for name in weights if name.endswith((".output", ".down"))}
    assert mapped == set(weights) - columns
    assert all(tensor.is_contiguous() for tensor in weights.values())


def test_copies_are_in_files_whose_pages_can_be_written_out() -> None:
    before = {file for _, file in mappings()}
    tensor = mapped_empty((1024, 1024), torch.float16).fill_(3)
    assert any(tensor.data_ptr() in addresses for addresses, file in mappings() if file not in before)
    assert tensor[7, 7] == 3
    del tensor
    assert {file for _, file in mappings()} <= before


def test_copies_that_do_not_fit_are_told_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("trtllm_engine.checkpoint.scratch.os.posix_fallocate", full)
    with pytest.raises(Failure, match="is full") as caught:
        mapped_empty((1024, 1024), torch.float16)
    assert caught.value.code is ExitCode.NO_SPACE


def test_facts_without_weights_are_those_of_the_checkpoint(model: Path) -> None:
    facts = inspect_model(model)
    (model / WEIGHTS).unlink()
    imagined = inspect_model(model, weightless=True)
    assert imagined.digest != facts.digest
    assert dataclasses.replace(imagined, digest=facts.digest) == facts


def test_tied_embeddings_count_once(tmp_path: Path) -> None:
    tied, untied = tiny_llama(tmp_path / "a", tie_word_embeddings=True), tiny_llama(tmp_path / "b")
    difference = inspect_model(untied).parameters - inspect_model(tied).parameters
    assert difference == inspect_model(tied).vocab_size * 64


def test_shards_have_the_facts_of_the_whole_but_for_the_digest(model: Path) -> None:
    whole = inspect_model(model)
    split_in_shards(model)
    shards = inspect_model(model)
    assert shards.to_dict() | {"digest": ""} == whole.to_dict() | {"digest": ""}
    assert shards.digest != whole.digest


def test_inspecting_does_without_torch(model: Path) -> None:
    code = (
        f"import sys; from trtllm_engine.cli import main; main(['inspect', {str(model)!r}]); "
        "assert 'torch' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["architecture"] == "LlamaForCausalLM"


Break = Callable[[Path], None]


def cut_tail(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:-10])


def cut_in_header(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:100])


def garbage(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"\xff" * 4096)


def broken_json(folder: Path) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[8] = ord("[")
    (folder / WEIGHTS).write_bytes(data)


def trailing_bytes(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes() + b"\0")


def out_of_file(folder: Path) -> None:
    def change(header: dict[str, Any]) -> None:
        start, end = header[QUERY]["data_offsets"]
        header[QUERY]["data_offsets"] = [start + (1 << 40), end + (1 << 40)]

    edit_header(folder, change)


def missing_tensor(folder: Path) -> None:
    edit_header(folder, lambda header: header.__setitem__("renamed", header.pop(QUERY)))


def wrong_shape(folder: Path) -> None:
    edit_header(folder, lambda header: header[QUERY].__setitem__("shape", [32, 128]))


def impossible_size(folder: Path) -> None:
    edit_header(folder, lambda header: header[QUERY].__setitem__("shape", [64, 63]))


def config_cut(folder: Path) -> None:
    (folder / "config.json").write_text("{")


CORRUPT: dict[str, tuple[Break, str, str]] = {
    "cut at the end": (cut_tail, WEIGHTS, "the file is cut"),
    "cut in the header": (cut_in_header, WEIGHTS, "cut, or not safetensors"),
    "no safetensors at all": (garbage, WEIGHTS, "cut, or not safetensors"),
    "a header that is no JSON": (broken_json, WEIGHTS, "not JSON"),
    "bytes after the last tensor": (trailing_bytes, WEIGHTS, "1 bytes follow"),
    "a tensor out of the file": (out_of_file, WEIGHTS, QUERY),
    "a tensor missing": (missing_tensor, WEIGHTS, f"tensor {QUERY} of shape [64, 64] is missing"),
    "a tensor of another shape": (
        wrong_shape,
        WEIGHTS,
        f"tensor {QUERY} has shape [32, 128], but config.json makes it [64, 64]",
    ),
    "a tensor whose bytes do not hold it": (impossible_size, WEIGHTS, QUERY),
    "a config that is no JSON": (
        config_cut,
        "config.json",
        "not JSON",
    ),
    "a config without sizes": (lambda folder: edit_config(folder, hidden_size=None), "config.json", "hidden_size"),
    "sizes that cannot be": (
        lambda folder: edit_config(folder, num_key_value_heads=3),
        "config.json",
        "does not divide",
    ),
    "negative layers": (lambda folder: edit_config(folder, num_hidden_layers=-1), "config.json", "num_hidden_layers"),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_corrupt_input_names_the_file_and_the_tensor(name: str, model: Path) -> None:
    damage, file, words = CORRUPT[name]
    damage(model)
    with pytest.raises(Failure) as caught:
        inspect_model(model)
    assert (caught.value.code, caught.value.field) == (ExitCode.CORRUPT_INPUT, file)
    assert words in caught.value.message


@pytest.mark.parametrize("escape", ["../../etc/passwd.safetensors", "/etc/x.safetensors", "x.bin"])
def test_an_index_cannot_lead_out_of_the_folder(escape: str, model: Path) -> None:
    split_in_shards(model)
    edit_index(model, **{QUERY: escape})
    with pytest.raises(Failure) as caught:
        inspect_model(model)
    assert caught.value.code is ExitCode.CORRUPT_INPUT and QUERY in caught.value.message


def test_an_index_that_names_the_wrong_shard_is_corrupt(model: Path) -> None:
    split_in_shards(model)
    tensors = json.loads((model / f"{WEIGHTS}.index.json").read_text())["weight_map"]
    edit_index(model, **{QUERY: "b.safetensors" if tensors[QUERY] == "a.safetensors" else "a.safetensors"})
    with pytest.raises(Failure) as caught:
        inspect_model(model)
    assert caught.value.code is ExitCode.CORRUPT_INPUT and QUERY in caught.value.message


UNSUPPORTED: dict[str, tuple[dict[str, object], str]] = {
    "an unknown architecture": (
        {"architectures": ["MambaForCausalLM"]},
        "known are Gemma2ForCausalLM, Gemma3ForCausalLM, LlamaForCausalLM, MistralForCausalLM, MixtralForCausalLM, "
        "Phi3ForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM",
    ),
    "another activation": ({"hidden_act": "relu2"}, "implemented are silu, gelu_pytorch_tanh"),
    "an unknown rope scaling": (
        {"rope_parameters": {"rope_type": "axial", "rope_theta": 1e4, "factor": 4.0}},
        "implemented are default, linear, dynamic, llama3, yarn, longrope",
    ),
    "an unknown kind of layer": (
        {
            "architectures": ["Qwen3ForCausalLM"],
            "use_sliding_window": True,
            "layer_types": ["linear_attention", "full_attention"],
        },
        "implemented are sliding_attention, full_attention",
    ),
    "attention in both directions": (
        {"architectures": ["Gemma3ForCausalLM"], "use_bidirectional_attention": True},
        "only causal attention is",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_no_definition_covers_is_refused_with_what_is_covered(name: str, model: Path) -> None:
    changes, words = UNSUPPORTED[name]
    edit_config(model, **changes)
    with pytest.raises(Failure) as caught:
        inspect_model(model)
    assert caught.value.code is ExitCode.UNSUPPORTED
    assert words in caught.value.message


@pytest.mark.parametrize(
    "config, words",
    [
        ({"pretrained_config": {}, "build_config": {}}, "TensorRT-LLM engine"),
        ({"architecture": "LlamaForCausalLM", "dtype": "float16"}, "TensorRT-LLM checkpoint"),
    ],
)
def test_tensorrt_llm_folders_are_told_apart_and_refused(config: dict[str, object], words: str, model: Path) -> None:
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(Failure) as caught:
        inspect_model(model)
    assert caught.value.code is ExitCode.UNSUPPORTED and words in caught.value.message


def test_a_quantized_checkpoint_is_described(model: Path) -> None:
    edit_config(model, quantization_config={"quant_method": "bitsandbytes"})
    assert inspect_model(model).quantization == "bitsandbytes"


def test_weights_of_another_format_are_told_from_missing_ones(model: Path) -> None:
    (model / WEIGHTS).rename(model / "pytorch_model.bin")
    with pytest.raises(Failure) as caught:
        inspect_model(model)
    assert caught.value.code is ExitCode.UNSUPPORTED and "pytorch_model.bin" in caught.value.message
    (model / "pytorch_model.bin").unlink()
    with pytest.raises(Failure) as caught:
        inspect_model(model)
    assert (caught.value.code, caught.value.field) == (ExitCode.MODEL_UNAVAILABLE, "model")


def test_a_missing_shard_is_a_missing_model(model: Path) -> None:
    split_in_shards(model)
    (model / "b.safetensors").unlink()
    with pytest.raises(Failure) as caught:
        inspect_model(model)
    assert caught.value.code is ExitCode.MODEL_UNAVAILABLE and str(model / "b.safetensors") in caught.value.message


def test_a_missing_folder_names_the_field_and_the_path(tmp_path: Path) -> None:
    with pytest.raises(Failure) as caught:
        locate(tmp_path / "nothing", tmp_path)
    assert (caught.value.code, caught.value.field) == (ExitCode.MODEL_UNAVAILABLE, "model")
    assert str(tmp_path / "nothing") in caught.value.message


def test_links_inside_the_volume_are_followed_and_others_refused(model: Path, tmp_path: Path) -> None:
    volume = tmp_path / "models"
    (volume / "alias").symlink_to(model)
    assert locate(volume / "alias", volume) == volume / "alias"
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (model / "generation_config.json").unlink()
    (model / "generation_config.json").symlink_to(secret)
    with pytest.raises(Failure) as caught:
        locate(model, volume)
    assert caught.value.code is ExitCode.BAD_REQUEST and "leads out of the volume" in caught.value.message


@pytest.mark.parametrize("path", ["/etc", "/models/../etc", "models/tiny", ""])
def test_a_path_outside_of_the_mount_is_a_bad_request(path: str, tmp_path: Path) -> None:
    with pytest.raises(Failure) as caught:
        Mounts.below(tmp_path).model(ModelSource(path=path))
    assert (caught.value.code, caught.value.field) == (ExitCode.BAD_REQUEST, "model.path")


def test_a_model_without_a_tokenizer_is_refused_before_anything_is_built(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    with pytest.raises(Failure, match=r"tokenizer\.json does not exist") as caught:
        inspect_model(model)
    assert (caught.value.code, caught.value.field) == (ExitCode.MODEL_UNAVAILABLE, "model")


def test_the_digest_tells_a_model_from_its_next_training_run(model: Path, tmp_path: Path) -> None:
    """Same shapes, same configs, same tokenizer: only the weights differ."""
    other = tiny_llama(tmp_path / "other", dtype="bfloat16", seed=1)
    assert (other / "config.json").read_bytes() == (model / "config.json").read_bytes()
    assert (other / "model.safetensors").stat().st_size == (model / "model.safetensors").stat().st_size
    assert digest(other) != digest(model)


def test_the_digest_sees_configs_and_headers_and_nothing_beside_the_model(model: Path) -> None:
    before = digest(model)
    for name in ("README.md", ".gitattributes", "pytorch_model.bin", "modeling.py"):
        (model / name).write_text("noise")
    assert digest(model) == before
    edit_config(model, eos_token_id=1)
    changed = digest(model)
    assert changed != before
    edit_header(model, lambda header: header.__setitem__("__metadata__", {"format": "pt", "note": "x"}))
    assert digest(model) != changed
    assert [path.name for path in model_files(model)] == sorted(path.name for path in model_files(model))
