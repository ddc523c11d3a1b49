"""What a config.json alone says is what the engine image finds in the checkpoint of that config.json."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.builders import smollm2_facts
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
