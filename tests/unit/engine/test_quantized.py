"""Quantised weights: exactly what the library's formula makes of them, sharded, small in every engine."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models import TINY_FAMILIES, tiny_llama
from tests.unit.engine.conftest import Workspace
from tests.unit.engine.reference import (
    EXECUTORS,
    ONE,
    TOLERANCE,
    Reference,
    compare,
    config_of,
    equals,
    on_network,
)
from trtllm_engine.build.engine_folder import read_record
from trtllm_engine.build.verify import verify
from trtllm_engine.checkpoint.rounding import round_into
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.contract import (
    DUMMY,
    BuildArgs,
    ExitCode,
    Mapping,
    QuantAlgo,
    QuantArgs,
    Target,
    Toolchain,
    rank_file,
)
from trtllm_engine.failure import Failure
from trtllm_engine.network.quantized import SCALES, VALUES, dequantize, pack, unpack
from trtllm_engine.network.scheme import Number, Scheme, check_scheme
from trtllm_engine.network.tensorrt_ops import TensorRtOps
from trtllm_engine.network.torch_decoder import TorchDecoder

INT8 = Scheme(number=Number.INT8)
INT4 = Scheme(number=Number.INT4, group=32)
SCHEMES = {
    "8 bits": INT8,
    "4 bits by 32": INT4,
    "4 bits by 64": dataclasses.replace(INT4, group=64),
    "4 bits by 128": dataclasses.replace(INT4, group=128),
}
W8A16 = QuantArgs(algo=QuantAlgo.W8A16)
W4A16 = QuantArgs(algo=QuantAlgo.W4A16, group_size=64)

MATRICES = ("_proj.weight", ".w1.weight", ".w2.weight", ".w3.weight")
"""How the names of matrices end in checkpoints."""
BY_COLUMNS = ("o_proj.weight", "down_proj.weight", ".w2.weight")
"""Of those, what the tensor ranks split by columns."""


def library_rounds(weight: Tensor, scheme: Scheme, dtype: torch.dtype = torch.float32, parts: int = 1) -> Tensor:
    """torch's own fake quantisation of a matrix, group by group, with scales in `dtype`; `parts`: of its columns."""
    columns = weight.shape[1] // parts
    groups = weight.float().reshape(-1, scheme.group or columns)
    scales = (groups.abs().amax(dim=1) / scheme.largest).to(dtype).float()
    zeros = torch.zeros(len(groups), dtype=torch.int32)
    rounded = torch.fake_quantize_per_channel_affine(groups, scales, zeros, 0, -scheme.largest - 1, scheme.largest)
    return rounded.reshape(weight.shape)


def rounded(weight: Tensor, scheme: Scheme, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    kept = torch.uint8 if scheme.number is Number.INT4 else torch.int8
    values = torch.empty(scheme.values_shape(tuple(weight.shape)), dtype=kept)
    scales = torch.empty(scheme.scales_shape(tuple(weight.shape)), dtype=dtype)
    round_into(values, scales, weight, scheme)
    return values, scales


def library_rounds_model(folder: Path, copy: Path, scheme: Scheme, tp: int) -> Path:
    """A copy of a checkpoint whose matrices are what the library makes of them."""
    shutil.copytree(folder, copy)
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if name.endswith(MATRICES):
            weights[name] = library_rounds(weight, scheme, parts=tp if name.endswith(BY_COLUMNS) else 1)
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SCHEMES)
def test_dequantised_values_are_the_librarys_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    weight = torch.randn(48, 256, generator=torch.Generator().manual_seed(1)).to(dtype)
    values, scales = rounded(weight, SCHEMES[name], dtype)
    assert torch.equal(dequantize(values, scales), library_rounds(weight, SCHEMES[name], dtype).to(dtype))
    assert values.nbytes == weight.numel() * (1 if SCHEMES[name] is INT8 else 0.5)


@pytest.mark.parametrize("name", SCHEMES)
def test_rounding_in_blocks_of_rows_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(50, 256, generator=torch.Generator().manual_seed(2))
    at_once = rounded(weight, SCHEMES[name])
    monkeypatch.setattr("trtllm_engine.checkpoint.rounding.BLOCK", 7 * 256)
    assert all(torch.equal(a, b) for a, b in zip(rounded(weight, SCHEMES[name]), at_once, strict=True))


def test_a_group_of_zeros_stays_zeros() -> None:
    weight = torch.zeros(2, 64)
    weight[1, 40] = -0.5
    assert torch.equal(dequantize(*rounded(weight, INT4)), weight)


def test_the_lower_half_of_a_byte_comes_first() -> None:
    values = torch.tensor([[1, -2, 7, -8]], dtype=torch.int8)
    assert pack(values).tolist() == [[0xE1, 0x87]]
    everything = torch.arange(-8, 8, dtype=torch.int8)
    assert torch.equal(unpack(pack(everything)), everything)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("mapping", [ONE, Mapping(tp=2, pp=2)], ids=["one rank", "tp2 pp2"])
@pytest.mark.parametrize("number", [INT8, INT4], ids=["8 bits", "4 bits"])
@pytest.mark.parametrize("family", ["llama", "mixtral", "phi3"])
def test_ranks_compute_what_transformers_does_with_the_librarys_values(
    family: str, number: Scheme, mapping: Mapping, executor: str, tmp_path: Path
) -> None:
    """A plain matrix, one for each expert, and several in one tensor."""
    folder = tiny_llama(tmp_path / "plain", intermediate_size=128, **TINY_FAMILIES[family])
    reference = Reference(library_rounds_model(folder, tmp_path / "rounded", number, mapping.tp))
    assert equals(EXECUTORS[executor](folder, mapping, scheme=number), reference.answer(steps=2))


class ExchangedHalves(TensorRtOps):
    def _small_constant(self, name: str, values: Tensor) -> object:
        return super()._small_constant(name, values << 4 | values >> 4)


class ExchangedGroups(TensorRtOps):
    def _weight(self, name: str) -> Tensor:
        return super()._weight(name).flip(-1) if name.endswith(SCALES) else super()._weight(name)


@pytest.mark.parametrize("broken", [ExchangedHalves, ExchangedGroups])
def test_the_comparison_notices_values_and_scales_in_the_wrong_place(broken: type[TensorRtOps], tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "plain", intermediate_size=128)
    reference = Reference(library_rounds_model(folder, tmp_path / "rounded", INT4, 1))
    decoder = on_network(folder, ops=broken, scheme=INT4)
    assert compare(decoder, reference.answer(steps=1)).worst > 100 * TOLERANCE


@pytest.fixture
def wide(tmp_path: Path) -> Workspace:
    """A model whose matrices are most of it."""
    workspace = Workspace(tmp_path)
    sizes: dict[str, Any] = {
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
    }
    tiny_llama(workspace.model, **sizes)
    return workspace


@pytest.mark.parametrize("toolchain", [Toolchain.TORCH, Toolchain.TENSORRT_RTX])
def test_weights_stay_small_in_the_engine(toolchain: Toolchain, wide: Workspace) -> None:
    sizes = {}
    for bits, quant in ((16, None), (8, W8A16), (4, W4A16)):
        shutil.rmtree(wide.engine, ignore_errors=True)
        request = wide.request(toolchain, dtype="float16", quant=quant)
        assert wide.build(request).ok
        verify(wide.engine, [0])
        sizes[bits] = (wide.engine / rank_file(0)).stat().st_size
    elements = 2 * (4 * 512 * 512 + 3 * 512 * 1024)
    for bits, scales in ((8, elements / 512 * 2), (4, elements / 64 * 2)):
        # Kernels are a few megabytes, and other ones. Weights that were kept wide would save nothing.
        least = 0.98 if toolchain is Toolchain.TORCH else 0.75
        assert least < (sizes[16] - sizes[bits]) / (elements * (16 - bits) / 8 - scales) < 1.02


@pytest.mark.parametrize("family", ["llama", "mixtral", "gemma2"])
def test_plans_build_with_ranks_and_experts(family: str, tmp_path: Path) -> None:
    workspace, mapping = Workspace(tmp_path), Mapping(tp=2, pp=2)
    sizes = {"hidden_size": 128, "intermediate_size": 128, "moe_intermediate_size": 128}
    settings = {"vocab_size": 320, **sizes, **TINY_FAMILIES[family], "head_dim": 32}
    tiny_llama(workspace.model, **settings | {key: 128 for key in sizes if key in settings})
    request = workspace.request(Toolchain.TENSORRT_RTX, dtype="bfloat16", mapping=mapping, quant=W4A16)
    assert workspace.build(request, 3).ok
    assert read_record(workspace.engine, 3).plan["constants"] > 0


def test_the_engine_holds_what_the_ranks_compute_with(workspace: Workspace) -> None:
    tiny_llama(workspace.model, intermediate_size=128)
    workspace.build(workspace.request(quant=dataclasses.replace(W4A16, group_size=32)))
    stored, config = load_file(workspace.engine / rank_file(0)), config_of(workspace.model)
    loaded = dict(load_weights(workspace.model, config, torch.float32, scheme=INT4))
    assert stored.keys() == loaded.keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in loaded.items())
    assert {stored["layers.0.down" + VALUES].dtype, stored["layers.0.down" + SCALES].dtype} == {
        torch.uint8,
        torch.float32,
    }
    decoder = TorchDecoder(config, stored, torch.float32, "cpu", 2, 32)
    reference = Reference(library_rounds_model(workspace.model, workspace.root / "rounded", INT4, 1))
    assert equals(decoder, reference.answer(steps=1))


def test_random_weights_are_quantised_too(workspace: Workspace) -> None:
    tiny_llama(workspace.model, intermediate_size=128)
    (workspace.model / "model.safetensors").unlink()
    assert workspace.build(workspace.request(load_format=DUMMY, quant=W4A16)).ok


REFUSED: dict[str, tuple[Toolchain, QuantArgs, dict[str, object], ExitCode, str, str]] = {
    "a group size that does not exist": (
        Toolchain.TORCH,
        dataclasses.replace(W4A16, group_size=48),
        {},
        ExitCode.BAD_REQUEST,
        "args.quant.groupSize",
        "48 is not a group size of W4A16; allowed are 128, 64, 32",
    ),
    "4 bits without groups": (
        Toolchain.TORCH,
        dataclasses.replace(W4A16, group_size=None),
        {},
        ExitCode.BAD_REQUEST,
        "args.quant.groupSize",
        "allowed are 128, 64, 32",
    ),
    "8 bits with groups": (
        Toolchain.TORCH,
        dataclasses.replace(W8A16, group_size=64),
        {},
        ExitCode.BAD_REQUEST,
        "args.quant.groupSize",
        "leave groupSize 64 out",
    ),
    "groups that no rank has whole": (
        Toolchain.TORCH,
        W4A16,
        {"mapping": Mapping(tp=2)},
        ExitCode.UNSUPPORTED,
        "args.quant.groupSize",
        "a rank of tp 2 has 32 columns of the matrix 'output', which do not divide into groups of 64; "
        "what works: groupSize 32, or tp 1",
    ),
    "4 bits where the GPU has none": (
        Toolchain.TENSORRT_RTX,
        W4A16,
        {"target": Target(compute_capability="7.5"), "dtype": "float16"},
        ExitCode.UNSUPPORTED,
        "args.quant.algo",
        "use W8A16",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_quantised_so_says_what_can(name: str, workspace: Workspace) -> None:
    toolchain, quant, changes, code, field, words = REFUSED[name]
    tiny_llama(workspace.model, intermediate_size=128)
    with pytest.raises(Failure) as caught:
        workspace.build(workspace.request(toolchain, quant=quant, **changes))
    assert (caught.value.code, caught.value.field) == (code, field)
    assert words in caught.value.message


def test_a_width_that_no_group_divides_has_another_algorithm(tmp_path: Path) -> None:
    config = config_of(tiny_llama(tmp_path, intermediate_size=112))
    with pytest.raises(Failure, match="'down', which do not divide into groups of 32; nothing works: use W8A16"):
        check_scheme(config, ONE, INT4)


def test_an_unset_quantisation_leaves_no_trace_in_the_request() -> None:
    args = BuildArgs(dtype="float16", max_batch_size=1, max_input_len=1, max_seq_len=1)
    assert "quant" not in args.to_dict()
    chosen = dataclasses.replace(args, quant=W4A16)
    assert json.loads(chosen.to_json())["quant"] == {"algo": "W4A16", "groupSize": 64}
    assert BuildArgs.from_json(chosen.to_json()) == chosen
