"""Checkpoints that come quantised: what GPTQ, AWQ and compressed-tensors packed is what the engine holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models import TINY_FAMILIES, tiny_llama
from tests.unit.engine.conftest import Workspace
from tests.unit.engine.reference import EXECUTORS, ONE, Reference, config_of, equals
from tests.unit.engine.test_quantized import MATRICES, W8A16
from trtllm_engine.build.verify import verify
from trtllm_engine.checkpoint.folder import read_json
from trtllm_engine.checkpoint.inspect import inspect_model
from trtllm_engine.checkpoint.stored_scheme import StoredScheme, read_stored_scheme
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.contract import ExitCode, Mapping, Target, Toolchain
from trtllm_engine.failure import Failure
from trtllm_engine.network.parameters import MATRICES as ROLES
from trtllm_engine.network.parameters import rank_parameters
from trtllm_engine.network.quantized import SCALES, VALUES, dequantize
from trtllm_engine.network.rank import Rank

Json = dict[str, Any]


def words_of(values: Tensor, bits: int) -> Tensor:
    """What is to be stored of [..., n * words] values that are not negative: the first in the lowest bits."""
    parts = values.to(torch.int64).reshape(*values.shape[:-1], -1, 32 // bits) << torch.arange(0, 32, bits)
    return parts.sum(dim=-1).to(torch.int32)  # beyond 2^31 it wraps to a negative word


def zero_points(shape: tuple[int, int], bits: int, *, symmetric: bool) -> Tensor:
    """The middle, or all that there are but the lowest, for which the first version of GPTQ has no place."""
    if symmetric:
        return torch.full(shape, 2 ** (bits - 1))
    return torch.randint(1, 2**bits, shape, generator=torch.Generator().manual_seed(4))


class Gptq:
    """What AutoGPTQ writes: v1 stores zero points less one."""

    def __init__(self, bits: int = 4, group: int = 32, **changes: object) -> None:
        self.bits, self.group, self.first = bits, group, ".qweight"
        section = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": True, "desc_act": False}
        self.section: Json = {**section, **changes}
        self.stored_less = 0 if changes.get("checkpoint_format") == "gptq_v2" else 1

    def tensors(self, prefix: str, values: Tensor, scales: Tensor) -> dict[str, Tensor]:
        """`values` [out, in] with half of the range added, `scales` [out, groups]."""
        groups, rows, columns = scales.shape[1], *values.shape
        zeros = zero_points((groups, rows), self.bits, symmetric=bool(self.section["sym"])) - self.stored_less
        return {
            f"{prefix}.qweight": words_of(values, self.bits).T.contiguous(),
            f"{prefix}.qzeros": words_of(zeros, self.bits),
            f"{prefix}.scales": scales.T.contiguous(),
            f"{prefix}.g_idx": torch.arange(columns, dtype=torch.int32) // (columns // groups),
        }

    def formula(self, tensors: dict[str, Tensor], prefix: str) -> Tensor:
        """Its library's: scales[g] * (qweight - (qzeros + 1)), transposed, computed in the type of the scales."""
        shifts = torch.arange(0, 32, self.bits, dtype=torch.int32)
        mask = 2**self.bits - 1
        zeros = (tensors[f"{prefix}.qzeros"].unsqueeze(2) >> shifts & mask).flatten(1) + self.stored_less
        weights = (tensors[f"{prefix}.qweight"].unsqueeze(1) >> shifts[:, None] & mask).flatten(0, 1)
        scales, g = tensors[f"{prefix}.scales"], tensors[f"{prefix}.g_idx"].long()
        weight: Tensor = (scales[g] * (weights - zeros[g]).to(scales.dtype)).T
        return weight


class Awq:
    """What AutoAWQ writes for its matrix products: words of eight outputs, exchanged."""

    def __init__(self, group: int = 32, **changes: object) -> None:
        self.bits, self.group, self.first = 4, group, ".qweight"
        section = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": False, "version": "gemm"}
        self.section: Json = {**section, **changes}

    def tensors(self, prefix: str, values: Tensor, scales: Tensor) -> dict[str, Tensor]:
        """`values` [out, in] with half of the range added, `scales` [out, groups]."""
        shape = scales.shape[1], scales.shape[0]
        zeros = zero_points(shape, self.bits, symmetric=not self.section["zero_point"])
        return {
            f"{prefix}.qweight": self._packed(values.T),
            f"{prefix}.qzeros": self._packed(zeros),
            f"{prefix}.scales": scales.T.contiguous(),
        }

    def _packed(self, values: Tensor) -> Tensor:
        """As its packer does: the i-th four bits of a word are those of its output 0, 2, 4, 6, 1, 3, 5, 7."""
        packed = torch.zeros(values.shape[0], values.shape[1] // 8, dtype=torch.int64)
        for place, output in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            packed |= values[:, output::8].long() << 4 * place
        return packed.to(torch.int32)

    def formula(self, tensors: dict[str, Tensor], prefix: str) -> Tensor:
        """Its library's: unpacked, reordered, (values - zeros) * scales, group by group, in the type of the scales."""

        def unpacked(name: str) -> Tensor:
            words = tensors[f"{prefix}.{name}"]
            parts = words[:, :, None] >> torch.arange(0, 32, 4, dtype=torch.int32) & 0xF
            order = torch.arange(words.shape[1] * 8).reshape(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].flatten()
            return parts.reshape(len(words), -1)[:, order]

        scales = tensors[f"{prefix}.scales"]
        zeros = unpacked("qzeros").repeat_interleave(self.group, dim=0)
        values = (unpacked("qweight") - zeros).to(scales.dtype)
        weight: Tensor = (values * scales.repeat_interleave(self.group, dim=0)).T
        return weight


class Compressed:
    """What llm-compressor writes as pack-quantized."""

    def __init__(self, bits: int = 4, group: int | None = 32, **changes: object) -> None:
        self.bits, self.group, self.first = bits, group, ".weight_packed"
        strategy = {"strategy": "group", "group_size": group} if group else {"strategy": "channel", "group_size": None}
        weights = {"num_bits": bits, "type": "int", "symmetric": True, "dynamic": False, "actorder": None, **strategy}
        groups = {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": {**weights, **changes}}}
        self.section: Json = {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": groups,
            "ignore": ["lm_head"],
            "kv_cache_scheme": None,
        }

    def tensors(self, prefix: str, values: Tensor, scales: Tensor) -> dict[str, Tensor]:
        return {
            f"{prefix}.weight_packed": words_of(values, self.bits),
            f"{prefix}.weight_scale": scales,
            f"{prefix}.weight_shape": torch.tensor(values.shape),
        }

    def formula(self, tensors: dict[str, Tensor], prefix: str) -> Tensor:
        """Its library's: (unpacked - half of the range) * scale, group by group, in the type of the scale."""
        shifts = torch.arange(0, 32, self.bits, dtype=torch.int32)
        unpacked = (tensors[f"{prefix}.weight_packed"].unsqueeze(2) >> shifts & 2**self.bits - 1).flatten(1)
        scales = tensors[f"{prefix}.weight_scale"]
        values = (unpacked - 2 ** (self.bits - 1)).to(scales.dtype)
        weight: Tensor = (values.reshape(*scales.shape, -1) * scales.unsqueeze(-1)).flatten(1)
        return weight


Form = Gptq | Awq | Compressed

FORMATS: dict[str, Callable[[], Form]] = {
    "gptq": Gptq,
    "gptq, 8 bits": lambda: Gptq(bits=8),
    "gptq, whole rows": lambda: Gptq(group=-1),
    "gptq v2": lambda: Gptq(checkpoint_format="gptq_v2"),
    "gptq, zero points": lambda: Gptq(sym=False),
    "awq": Awq,
    "awq, zero points": lambda: Awq(zero_point=True),
    "compressed": Compressed,
    "compressed, 8 bits": lambda: Compressed(bits=8),
    "compressed, whole rows": lambda: Compressed(bits=8, group=None),
}


def quantise(folder: Path, form: Form, dtype: torch.dtype = torch.float32) -> None:
    """Replace the matrices of a checkpoint by random values with random scales in `dtype`, and say so."""
    luck = torch.Generator().manual_seed(3)
    stored: dict[str, Tensor] = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if not name.endswith(MATRICES):
            stored[name] = weight
            continue
        rows, columns = weight.shape
        groups = columns // form.group if form.group and form.group > 0 else 1
        values = torch.randint(0, 2**form.bits, (rows, columns), generator=luck)
        scales = (torch.rand(rows, groups, generator=luck) + 0.5) / 2 ** (form.bits - 1) / 4
        stored |= form.tensors(name.removesuffix(".weight"), values, scales.to(dtype))
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    edit_config(folder, quantization_config=form.section)


def edit_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def stored_in(folder: Path) -> StoredScheme:
    stored = read_stored_scheme(read_json(folder / "config.json"), folder)
    assert stored is not None
    return stored


def by_formula(folder: Path, copy: Path, form: Form) -> Path:
    """A plain copy of a quantised checkpoint, its matrices computed by its library's formula."""
    shutil.copytree(folder, copy)
    tensors = load_file(folder / "model.safetensors")
    plain = {name: tensor for name, tensor in tensors.items() if name.endswith(".weight")}
    for name in tensors:
        if name.endswith(form.first):
            prefix = name.removesuffix(form.first)
            plain[f"{prefix}.weight"] = form.formula(tensors, prefix).contiguous()
    save_file(plain, copy / "model.safetensors", metadata={"format": "pt"})
    edit_config(copy, quantization_config=None)
    return copy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("family", ["llama", "mixtral", "phi3"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_ranks_values_are_the_formulas_bit_for_bit(
    name: str, family: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """A plain matrix, one for each expert, and several in one tensor; whole, and a part of it."""
    form, settings = FORMATS[name](), {"intermediate_size": 128, **TINY_FAMILIES[family]}
    folder = tiny_llama(tmp_path / "packed", **settings)
    quantise(folder, form, dtype)
    plain, config, stored = by_formula(folder, tmp_path / "plain", form), config_of(folder), stored_in(folder)
    for mapping in (ONE, Mapping(tp=2)):
        rank = Rank(mapping=mapping, index=mapping.world_size - 1)
        expected = dict(load_weights(plain, config, dtype, rank))
        found = dict(load_weights(folder, config, dtype, rank, stored.scheme, stored))
        for parameter in rank_parameters(config, rank):
            if parameter.role not in ROLES:
                assert torch.equal(found[parameter.name], expected[parameter.name])
                continue
            values, scales = found[parameter.name + VALUES], found[parameter.name + SCALES]
            assert torch.equal(dequantize(values, scales), expected[parameter.name])
            assert values.nbytes * 8 == (8 if stored.zero_points else form.bits) * expected[parameter.name].numel()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("form", [Gptq, Awq, Compressed])
def test_engines_compute_what_transformers_does_with_the_formulas_values(
    form: type[Form], executor: str, tmp_path: Path
) -> None:
    folder = tiny_llama(tmp_path / "packed", intermediate_size=128)
    quantise(folder, form())
    reference = Reference(by_formula(folder, tmp_path / "plain", form()))
    stored = stored_in(folder)
    decoder = EXECUTORS[executor](folder, Mapping(tp=2, pp=2), scheme=stored.scheme, stored=stored)
    assert equals(decoder, reference.answer(steps=2))


@pytest.mark.parametrize("toolchain", [Toolchain.TORCH, Toolchain.TENSORRT_RTX])
@pytest.mark.parametrize("form", [Gptq, Awq, Compressed])
def test_a_quantised_checkpoint_is_built_as_it_is(form: type[Form], toolchain: Toolchain, workspace: Workspace) -> None:
    tiny_llama(workspace.model, intermediate_size=128)
    quantise(workspace.model, form())
    assert workspace.build(workspace.request(toolchain, dtype="float16")).ok
    verify(workspace.engine, [0])


def test_inspection_names_the_method_and_counts_the_models_parameters(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, intermediate_size=128)
    plain = inspect_model(folder)
    quantise(folder, Gptq())
    facts = inspect_model(folder)
    assert (facts.quantization, facts.parameters) == ("gptq", plain.parameters)
    assert facts.weight_bytes < plain.weight_bytes


REFUSED: dict[str, tuple[Callable[[], Form], str]] = {
    "zero points": (lambda: Gptq(bits=8, sym=False), "sym is false: the values have zero points, and less them"),
    "another packing": (lambda: Awq(version="gemv"), "version 'gemv' is not read; read is gemm"),
    "columns out of order": (lambda: Gptq(desc_act=True), "desc_act is true"),
    "three bits": (lambda: Gptq(bits=3), "weights of 3 bits are not read; read are 4 and 8"),
    "odd groups": (lambda: Gptq(group=16), "groups of 16 are not read; read are 128, 64, 32, and whole rows"),
    "a quantised head": (lambda: Gptq(lm_head=True), "lm_head is true"),
    "zero points too": (lambda: Compressed(symmetric=False), "symmetric is false"),
    "columns out of order too": (lambda: Compressed(actorder="group"), "actorder is group"),
    "floating values": (lambda: Compressed(type="float"), "weights are of type float; read is int"),
    "one scale for all": (lambda: Compressed(strategy="tensor"), "strategy tensor is not read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_the_reason(name: str, workspace: Workspace) -> None:
    form, words = REFUSED[name]
    edit_config(workspace.model, quantization_config=form().section)
    failure = failure_of(workspace)
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "model")
    assert words in failure.message and "the build can quantise it" in failure.message


@pytest.mark.parametrize("method", ["bitsandbytes", "fp8"])
def test_other_methods_are_refused_with_those_that_are_read(method: str, workspace: Workspace) -> None:
    edit_config(workspace.model, quantization_config={"quant_method": method})
    failure = failure_of(workspace)
    assert failure.code is ExitCode.UNSUPPORTED
    assert f"quantised by '{method}' are not read; read are gptq, awq, compressed-tensors, modelopt" in failure.message


def edit_tensors(folder: Path, **changes: Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in (tensors | changes).items() if v is not None}, folder / "model.safetensors")


QUERY = "model.layers.1.self_attn.q_proj"

SPOILED: dict[str, tuple[Callable[[], dict[str, Tensor | None]], ExitCode, str]] = {
    "zero points that the config denies": (
        lambda: {f"{QUERY}.qzeros": torch.zeros(2, 8, dtype=torch.int32)},
        ExitCode.UNSUPPORTED,
        f"{QUERY}.qzeros: values have zero points",
    ),
    "an order that the config denies": (
        lambda: {f"{QUERY}.g_idx": torch.arange(64, dtype=torch.int32) % 2},
        ExitCode.UNSUPPORTED,
        f"{QUERY}.g_idx: the columns of a group are not neighbours",
    ),
    "a matrix that is not quantised": (
        lambda: {f"{QUERY}.qweight": None, f"{QUERY}.weight": torch.zeros(64, 64)},
        ExitCode.UNSUPPORTED,
        f"tensor {QUERY}.weight is not quantised, though others are",
    ),
    "a missing tensor": (
        lambda: {f"{QUERY}.scales": None},
        ExitCode.CORRUPT_INPUT,
        f"tensor {QUERY}.scales of shape [2, 64] is missing",
    ),
    "a wrong type": (
        lambda: {f"{QUERY}.qweight": torch.zeros(8, 64)},
        ExitCode.CORRUPT_INPUT,
        f"tensor {QUERY}.qweight has dtype F32; allowed are I32",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_tensors_that_are_not_what_the_config_says_are_named(name: str, workspace: Workspace) -> None:
    changes, code, words = SPOILED[name]
    tiny_llama(workspace.model, intermediate_size=128)
    quantise(workspace.model, Gptq())
    edit_tensors(workspace.model, **changes())
    failure = failure_of(workspace)
    assert failure.code is code
    assert words in failure.message


def test_a_quantised_checkpoint_is_not_quantised_again(workspace: Workspace) -> None:
    tiny_llama(workspace.model, intermediate_size=128)
    quantise(workspace.model, Gptq())
    failure = failure_of(workspace, quant=W8A16)
    assert (failure.code, failure.field) == (ExitCode.BAD_REQUEST, "args.quant")
    assert "quantised already (gptq); leave it out" in failure.message


def test_groups_that_a_rank_would_split_name_the_ranks_that_work(workspace: Workspace) -> None:
    tiny_llama(workspace.model, intermediate_size=128)
    quantise(workspace.model, Gptq(group=64))
    failure = failure_of(workspace, mapping=Mapping(tp=2))
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "mapping")
    assert "32 columns of the matrix 'output', which do not divide into groups of 64; what works: tp 1" in str(failure)


def test_four_bits_are_refused_where_the_gpu_has_none(workspace: Workspace) -> None:
    tiny_llama(workspace.model, intermediate_size=128)
    quantise(workspace.model, Gptq())
    target = Target(compute_capability="7.5")
    failure = failure_of(workspace, toolchain=Toolchain.TENSORRT_RTX, target=target, dtype="float16")
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "model")


def failure_of(workspace: Workspace, **changes: Any) -> Failure:
    with pytest.raises(Failure) as caught:
        workspace.build(workspace.request(**changes))
    return caught.value
