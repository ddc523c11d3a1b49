"""What a config.json alone says is what the engine image finds in the checkpoint of that config.json."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.builders import smollm2_facts
from trtllm_engine.checkpoint.stored_scheme import method_of, read_stored_scheme
from trtllm_engine.contract import ExitCode, ModelFacts, QuantFacts
from trtllm_engine.failure import Failure
from trtllm_engine.network.families import ARCHITECTURES, read_config
from trtllm_engine.network.parameters import IN_EXPERTS, parameters
from trtllm_operator.cli.failure import BadInput
from trtllm_operator.cli.model_config import NO_DIGEST, SHAPES, model_facts, read_model_config

from .harness import CONFIG, written

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def test_every_architecture_of_the_engine_image_is_known() -> None:
    assert {name: shape.family for name, shape in SHAPES.items()} == {n: f.name for n, f in ARCHITECTURES.items()}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"head_dim": 16, "tie_word_embeddings": True, "sliding_window": 256},
        {"attention_bias": True, "mlp_bias": True, "sliding_window": None},
        {"use_sliding_window": True, "max_window_layers": 3, "sliding_window": 512, "sliding_window_pattern": 3},
        {"layer_types": ["sliding_attention"] * 5 + ["full_attention"] * 2, "use_sliding_window": True},
        {"num_local_experts": 4, "num_experts_per_tok": 3, "decoder_sparse_step": 2, "mlp_only_layers": [1]},
    ],
)
@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_the_sizes_are_those_of_the_network(architecture: str, more: dict[str, Any]) -> None:
    raw = {**SIZES, "architectures": [architecture], **more}
    if architecture == "MixtralForCausalLM":
        raw = {key: value for key, value in raw.items() if key not in ("decoder_sparse_step", "mlp_only_layers")}
    facts, config = model_facts(raw, "f"), read_config(raw)
    shapes = [(role, math.prod(shape)) for role, _, shape in parameters(config)]
    assert facts.parameters == sum(size for _, size in shapes)
    assert facts.expert_parameters == sum(size for role, size in shapes if role in IN_EXPERTS)
    assert (facts.sliding_window, facts.windowed_layers) == (config.sliding_window, len(config.windowed_layers))
    assert (facts.head_dim, facts.num_key_value_heads) == (config.head_dim, config.num_kv_heads)
    assert (facts.experts, facts.experts_per_token) == (config.experts, config.experts_per_token)
    assert facts.expert_intermediate_size == config.expert_intermediate_size
    assert (facts.tied_embeddings, facts.family) == (config.tied_embeddings, config.family)


def test_the_small_model_is_as_inspection_finds_it(tmp_path: Path) -> None:
    written(tmp_path / "config.json", CONFIG)
    for path in (tmp_path, tmp_path / "config.json"):
        assert read_model_config(path) == smollm2_facts(digest=NO_DIGEST)


def test_yarn_lengthens() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    raw = {**SIZES, "architectures": ["LlamaForCausalLM"], "rope_scaling": scaling}
    assert model_facts(raw, "f").max_position_embeddings == read_config(raw).max_positions == 16384


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"pretrained_config": {**SIZES, "architecture": "LlamaForCausalLM", "dtype": "float16"}, "build_config": {}},
         ("trtllm_engine", "float16", None)),
        ({**SIZES, "architecture": "LlamaForCausalLM", "dtype": "float16", "quantization": {"quant_algo": "FP8"}},
         ("trtllm_checkpoint", "float16", "FP8")),
        ({**SIZES, "architectures": ["NewForCausalLM"], "quantization_config": {"quant_method": "fp8"}},
         ("hf", "bfloat16", "fp8")),
    ],
)  # fmt: skip
def test_formats_are_told_apart_by_their_keys(raw: dict[str, Any], expected: tuple[str, str, str | None]) -> None:
    facts = model_facts(raw, "f")
    assert (facts.format, facts.dtype, facts.quantization) == expected


def compressed(weights: dict[str, Any], *, form: str = "pack-quantized", **group: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, **group}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
FLOAT8: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}
INT8: dict[str, Any] = {**FLOAT8, "type": "int"}
SECTIONS: dict[str, dict[str, Any]] = {
    "gptq": GPTQ,
    "gptq of 8 bits": {**GPTQ, "bits": 8},
    "gptq of whole rows": {**GPTQ, "group_size": -1},
    "gptq without groups named": {key: value for key, value in GPTQ.items() if key != "group_size"},
    "gptq, another format": {**GPTQ, "checkpoint_format": "marlin"},
    "gptq, an order of columns": {**GPTQ, "desc_act": True},
    "gptq, zero points": {**GPTQ, "sym": False},
    "gptq of 8 bits, zero points": {**GPTQ, "bits": 8, "sym": False},
    "gptq of 3 bits": {**GPTQ, "bits": 3},
    "gptq, small groups": {**GPTQ, "group_size": 16},
    "gptq, a head": {**GPTQ, "lm_head": True},
    "awq": AWQ,
    "awq, symmetric": {**AWQ, "zero_point": False},
    "awq, gemv": {**AWQ, "version": "gemv"},
    "awq of 8 bits": {**AWQ, "bits": 8},
    "compressed by groups": compressed({"num_bits": 4, "strategy": "group", "group_size": 64}),
    "compressed by rows": compressed({"num_bits": 8, "strategy": "channel"}),
    "compressed, by tensor": compressed({"num_bits": 8, "strategy": "tensor"}),
    "compressed, zero points": compressed({"num_bits": 4, "group_size": 64, "symmetric": False}),
    "compressed, an order": compressed({"num_bits": 4, "group_size": 64, "actorder": "group"}),
    "compressed, an order in place": compressed({"num_bits": 4, "group_size": 64, "actorder": "static"}),
    "compressed, activations": compressed({"num_bits": 8, "strategy": "channel"}, input_activations=INT8),
    "compressed, results": compressed({"num_bits": 8, "strategy": "channel"}, output_activations=INT8),
    "compressed, floats": compressed({"num_bits": 8, "type": "float", "strategy": "channel"}),
    "compressed, a cache": {**compressed({"num_bits": 4, "group_size": 64}), "kv_cache_scheme": {"num_bits": 8}},
    "compressed, no groups": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}},
    "fp8 of both": compressed(FLOAT8, form="float-quantized", input_activations=FLOAT8),
    "fp8 of weights": compressed(FLOAT8, form="float-quantized"),
    "fp8, dynamic": compressed(FLOAT8, form="float-quantized", input_activations={**FLOAT8, "dynamic": True}),
    "int8 of both": compressed(INT8, form="int-quantized", input_activations=INT8),
    "int8 of weights": compressed(INT8, form="int-quantized"),
    "int8 of tokens": compressed(INT8, form="int-quantized", input_activations={**INT8, "strategy": "token"}),
    "modelopt": {"quant_method": "modelopt", "quant_algo": "FP8"},
    "modelopt, a cache": {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
    "modelopt, other": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "others": {"quant_method": "bitsandbytes"},
    "nothing said": {},
}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_quantised_checkpoint_is_read_as_the_engine_image_reads_it(name: str, tmp_path: Path) -> None:
    raw = {**SIZES, "architectures": ["LlamaForCausalLM"], "quantization_config": SECTIONS[name]}
    assert_read_alike(model_facts(raw, "f"), raw, tmp_path)


@pytest.mark.parametrize("algo", ["FP8", "W4A16_AWQ", None])
def test_what_modelopt_wrote_beside_the_config_is_read(algo: str | None, tmp_path: Path) -> None:
    raw = {**SIZES, "architectures": ["LlamaForCausalLM"]}
    written(tmp_path / "config.json", json.dumps(raw))
    written(tmp_path / "hf_quant_config.json", json.dumps({"quantization": {"quant_algo": algo} if algo else {}}))
    facts = read_model_config(tmp_path)
    assert facts.quantization == "modelopt"
    assert_read_alike(facts, raw, tmp_path)


def assert_read_alike(facts: ModelFacts, raw: dict[str, Any], folder: Path) -> None:
    """The same scheme, or both refuse it."""
    assert facts.quantization == method_of(raw, folder)
    try:
        stored = read_stored_scheme(raw, folder)
    except Failure as failure:
        assert failure.code is ExitCode.UNSUPPORTED
        assert facts.quant is None
        assert facts.quant_unread
    else:
        assert stored is not None
        assert facts.quant == QuantFacts(algo=stored.scheme.algo, group_size=stored.scheme.group)
        assert facts.quant_unread is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "hidden_size is missing; it must be a positive integer"),
        ({"num_hidden_layers": "7"}, 'num_hidden_layers is "7"; it must be a positive integer'),
        ({"architectures": []}, "architectures must list one name"),
        ({"torch_dtype": "int8"}, "dtype is 'int8'; possible are float32, float16, bfloat16"),
    ],
)
def test_a_wrong_value_is_bad_input_naming_its_key(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = written(tmp_path / "config.json", json.dumps({**SIZES, "architectures": ["LlamaForCausalLM"], **change}))
    with pytest.raises(BadInput) as refused:
        read_model_config(path)
    assert said in str(refused.value)
