"""Checkpoints whose activations are quantised too, with scales that are known beforehand: FP8 and INT8."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.models import TINY_FAMILIES, tiny_llama
from tests.unit.engine.conftest import Workspace
from tests.unit.engine.reference import EXECUTORS, ONE, Reference, compare, config_of, on_network
from tests.unit.engine.test_packed import edit_config, edit_tensors, failure_of, stored_in
from tests.unit.engine.test_quantized import MATRICES
from trtllm_engine.build.verify import verify
from trtllm_engine.checkpoint.inspect import inspect_model
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.contract import ExitCode, Mapping, QuantAlgo, QuantFacts, Target, Toolchain, rank_file
from trtllm_engine.network.parameters import MATRICES as ROLES
from trtllm_engine.network.parameters import rank_parameters
from trtllm_engine.network.quantized import INPUT_SCALE, SCALES, VALUES, dequantize
from trtllm_engine.network.rank import Rank
from trtllm_engine.network.tensorrt_ops import TensorRtOps

Json = dict[str, Any]
Step = dict[str, Tensor]

FP8 = torch.float8_e4m3fn

TOLERANCE = 0.5
"""Absolute, on float32 logits of size 6. They mostly agree within 1e-5; but where another order of additions moves a
number over the middle between two values, it becomes another one, and that is 0.2. Nothing rounded makes 2."""


class Form:
    """What a library makes of a matrix, in the layout that it writes."""

    def __init__(self, kind: torch.dtype, *, by_row: bool, **changes: object) -> None:
        self.kind, self.by_row, self.changes = kind, by_row, changes
        self.largest = 448.0 if kind is FP8 else 127.0

    def tensors(self, weight: Tensor, index: int) -> Step:
        """By the last part of their names; `index`: every matrix has another scale for what it multiplies."""
        largest = weight.abs().amax(dim=1, keepdim=True) if self.by_row else weight.abs().amax()
        scale = largest / self.largest
        scaled = weight / scale
        values = scaled.to(FP8) if self.kind is FP8 else scaled.round().to(torch.int8)
        reach = 6.0 + index % 3
        return {
            "weight": values,
            "weight_scale": self.written(scale),
            "input_scale": self.written(torch.tensor(reach / self.largest)),
        }

    def written(self, scale: Tensor) -> Tensor:
        return scale

    def declare(self, folder: Path) -> None:
        raise NotImplementedError

    def formula(self, x: Tensor, scale: Tensor) -> Tensor:
        """What the library computes with in place of an activation."""
        if self.kind is torch.int8:
            return torch.fake_quantize_per_tensor_affine(x, scale.item(), 0, -128, 127)
        return (x / scale).clamp(-448, 448).to(FP8).float() * scale


class ModelOpt(Form):
    """FP8 as ModelOpt exports it: a file of its own, and scales without a dimension."""

    def __init__(self, **changes: object) -> None:
        super().__init__(FP8, by_row=False, **changes)

    def declare(self, folder: Path) -> None:
        section = {"quant_algo": "FP8", "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}
        text = json.dumps({"producer": {"name": "modelopt"}, "quantization": section | self.changes})
        (folder / "hf_quant_config.json").write_text(text)


class Compressed(Form):
    """What llm-compressor writes as float-quantized and int-quantized."""

    def written(self, scale: Tensor) -> Tensor:
        return scale.reshape(-1, 1) if scale.dim() else scale.reshape(1)

    def declare(self, folder: Path) -> None:
        number = {"num_bits": 8, "type": "float" if self.kind is FP8 else "int", "symmetric": True, "dynamic": False}
        group = {
            "targets": ["Linear"],
            "weights": {**number, "strategy": "channel" if self.by_row else "tensor"},
            "input_activations": {**number, "strategy": "tensor", **self.changes},
        }
        section = {
            "quant_method": "compressed-tensors",
            "format": "float-quantized" if self.kind is FP8 else "int-quantized",
            "config_groups": {"group_0": group},
            "ignore": ["lm_head"],
        }
        edit_config(folder, quantization_config=section)


FORMS: dict[str, Callable[[], Form]] = {
    "modelopt": ModelOpt,
    "compressed, FP8, one scale": lambda: Compressed(FP8, by_row=False),
    "compressed, FP8": lambda: Compressed(FP8, by_row=True),
    "compressed, INT8": lambda: Compressed(torch.int8, by_row=True),
}


def quantise(folder: Path, form: Form, copy: Path | None = None) -> Step:
    """Quantise a checkpoint's matrices, and say so; into `copy` go those that its library computes with.

    Returns the scales of activations by module.
    """
    stored: Step = {}
    plain: Step = {}
    inputs: Step = {}
    for index, (name, weight) in enumerate(load_file(folder / "model.safetensors").items()):
        stored[name] = plain[name] = weight
        if name.endswith(MATRICES):
            prefix = name.removesuffix(".weight")
            made = form.tensors(weight, index)
            stored |= {f"{prefix}.{part}": tensor for part, tensor in made.items()}
            plain[name] = made["weight"].float() * made["weight_scale"]
            inputs[prefix] = made["input_scale"]
    if copy is not None:
        copy.mkdir()
        (copy / "config.json").write_text((folder / "config.json").read_text())
        save_file(plain, copy / "model.safetensors", metadata={"format": "pt"})
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    form.declare(folder)
    return inputs


class Rounding(Reference):
    """transformers with the library's values, each input of a quantised matrix replaced by what the formula says."""

    def __init__(self, folder: Path, form: Form, inputs: Step) -> None:
        super().__init__(folder)
        modules = dict(self._model.named_modules())
        for name, scale in inputs.items():
            modules[name].register_forward_pre_hook(self._hook(form, scale))

    @staticmethod
    def _hook(form: Form, scale: Tensor) -> Callable[[nn.Module, tuple[Tensor]], Tensor]:
        return lambda _, arguments: form.formula(arguments[0], scale)


@pytest.mark.parametrize("family", ["llama", "phi3"])
@pytest.mark.parametrize("name", FORMS)
def test_what_a_rank_holds_is_what_the_library_computes_with(name: str, family: str, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "model", **TINY_FAMILIES[family])
    inputs = quantise(folder, FORMS[name](), tmp_path / "plain")
    config, stored = config_of(folder), stored_in(folder)
    rank = Rank(mapping=Mapping(tp=2), index=1)
    expected = dict(load_weights(tmp_path / "plain", config, torch.float32, rank))
    found = dict(load_weights(folder, config, torch.float32, rank, stored.scheme, stored))
    for parameter in rank_parameters(config, rank):
        if parameter.role in ROLES:
            values, scales = found[parameter.name + VALUES], found[parameter.name + SCALES]
            assert torch.equal(dequantize(values, scales), expected[parameter.name])
            assert values.nbytes == expected[parameter.name].numel()
            assert found[parameter.name + INPUT_SCALE].item() in {scale.item() for scale in inputs.values()}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("mapping", [ONE, Mapping(tp=2, pp=2)], ids=["one rank", "tp2 pp2"])
@pytest.mark.parametrize("name", ["modelopt", "compressed, INT8"])
def test_ranks_compute_what_transformers_does_with_rounded_inputs(
    name: str, mapping: Mapping, executor: str, tmp_path: Path
) -> None:
    form, folder = FORMS[name](), tiny_llama(tmp_path / "model")
    reference = Rounding(tmp_path / "plain", form, quantise(folder, form, tmp_path / "plain"))
    stored = stored_in(folder)
    decoder = EXECUTORS[executor](folder, mapping, scheme=stored.scheme, stored=stored)
    assert compare(decoder, reference.answer(steps=1)).worst < TOLERANCE


class WrongInputScale(TensorRtOps):
    def _weight(self, name: str) -> Tensor:
        return super()._weight(name) / 2 if name.endswith(INPUT_SCALE) else super()._weight(name)


class NothingRounded(TensorRtOps):
    def _rounded(self, x: object, weight: str) -> object:
        return x


@pytest.mark.parametrize("broken", [WrongInputScale, NothingRounded])
def test_the_comparison_notices_scales_of_activations(broken: type[TensorRtOps], tmp_path: Path) -> None:
    """Half of a scale cuts off what is large."""
    form, folder = FORMS["compressed, INT8"](), tiny_llama(tmp_path / "model")
    reference = Rounding(tmp_path / "plain", form, quantise(folder, form, tmp_path / "plain"))
    stored = stored_in(folder)
    decoder = on_network(folder, ops=broken, scheme=stored.scheme, stored=stored)
    assert compare(decoder, reference.answer(steps=1)).worst > 2 * TOLERANCE


def test_plans_multiply_small_numbers(tmp_path: Path) -> None:
    """The matrices are one byte for each number in the plan; what they multiply is quantised in the network."""
    sizes: dict[str | None, int] = {}
    settings: Json = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8}
    for name in (None, "modelopt", "compressed, INT8"):
        workspace = Workspace(tmp_path / str(name))
        tiny_llama(workspace.model, **settings)
        if name is not None:
            quantise(workspace.model, FORMS[name]())
        assert workspace.build(workspace.request(Toolchain.TENSORRT_RTX, dtype="float16")).ok
        verify(workspace.engine, [0])
        sizes[name] = (workspace.engine / rank_file(0)).stat().st_size
    elements = 2 * (4 * 512 * 512 + 3 * 512 * 1024)
    assert all(sizes[None] - sizes[name] > 0.75 * elements for name in ("modelopt", "compressed, INT8"))


@pytest.mark.parametrize("capability", ["7.5", "8.0"])
def test_older_gpus_multiply_integers(capability: str, workspace: Workspace) -> None:
    quantise(workspace.model, FORMS["compressed, INT8"]())
    target = Target(compute_capability=capability)
    assert workspace.build(workspace.request(Toolchain.TENSORRT_RTX, dtype="float16", target=target)).ok


def test_the_torch_engine_holds_the_same_numbers(workspace: Workspace) -> None:
    quantise(workspace.model, ModelOpt())
    assert workspace.build(workspace.request()).ok
    kept, config = load_file(workspace.engine / rank_file(0)), config_of(workspace.model)
    stored = stored_in(workspace.model)
    loaded = dict(load_weights(workspace.model, config, torch.float32, scheme=stored.scheme, stored=stored))
    assert kept.keys() == loaded.keys()
    assert all(torch.equal(kept[name].float(), tensor.float()) for name, tensor in loaded.items())
    assert kept["layers.0.down" + VALUES].dtype is FP8


def test_inspection_names_the_algorithm(workspace: Workspace) -> None:
    plain = inspect_model(workspace.model)
    quantise(workspace.model, ModelOpt())
    facts = inspect_model(workspace.model)
    assert (facts.quantization, facts.parameters) == ("modelopt", plain.parameters)
    assert facts.quant == QuantFacts(algo=QuantAlgo.FP8)


REFUSED: dict[str, tuple[Callable[[], Form], str]] = {
    "another algorithm": (lambda: ModelOpt(quant_algo="W4A8_AWQ"), "quant_algo W4A8_AWQ is not read; read is FP8"),
    "a quantised cache": (lambda: ModelOpt(kv_cache_quant_algo="FP8"), "take it out of hf_quant_config.json"),
    "scales found at run time": (
        lambda: Compressed(FP8, by_row=True, dynamic=True, strategy="token"),
        "input_activations are dynamic",
    ),
    "a scale for each token": (
        lambda: Compressed(torch.int8, by_row=True, strategy="token"),
        "strategy token of input_activations is not read; read is tensor",
    ),
    "zero points": (lambda: Compressed(torch.int8, by_row=True, symmetric=False), "input_activations have zero points"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_the_reason(name: str, workspace: Workspace) -> None:
    form, words = REFUSED[name]
    form().declare(workspace.model)
    failure = failure_of(workspace)
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "model")
    assert words in failure.message


def test_a_matrix_without_a_scale_for_its_input_is_named(workspace: Workspace) -> None:
    quantise(workspace.model, ModelOpt())
    name = "model.layers.1.mlp.up_proj.input_scale"
    edit_tensors(workspace.model, **{name: None})
    failure = failure_of(workspace)
    assert failure.code is ExitCode.CORRUPT_INPUT and f"tensor {name} of shape [1] is missing" in failure.message


def test_a_matrix_that_is_not_quantised_is_named(workspace: Workspace) -> None:
    quantise(workspace.model, ModelOpt())
    name = "model.layers.1.mlp.up_proj.weight"
    edit_tensors(workspace.model, **{name: torch.zeros(112, 64)})
    failure = failure_of(workspace)
    assert failure.code is ExitCode.UNSUPPORTED and f"tensor {name} is not quantised" in failure.message


def test_gpus_without_such_numbers_are_refused(workspace: Workspace) -> None:
    quantise(workspace.model, ModelOpt())
    target = Target(compute_capability="8.6")
    failure = failure_of(workspace, toolchain=Toolchain.TENSORRT_RTX, target=target, dtype="float16")
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "model")
    assert "8.6 has no 8-bit floating numbers; it takes 8.9 or newer" in failure.message


def test_activations_of_mixtures_are_not_quantised(workspace: Workspace) -> None:
    tiny_llama(workspace.model, **TINY_FAMILIES["mixtral"])
    ModelOpt().declare(workspace.model)
    failure = failure_of(workspace)
    assert (failure.code, failure.field) == (ExitCode.UNSUPPORTED, "model")
    assert "activations of mixtures of experts are not quantised" in failure.message
    facts = inspect_model(workspace.model)
    assert (facts.quantization, facts.quant) == ("modelopt", None)
    assert facts.quant_unread == "FP8: activations of mixtures of experts are not quantised"
