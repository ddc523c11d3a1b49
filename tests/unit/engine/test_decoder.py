"""The decoder computes what transformers computes, on torch and as the network that TensorRT engines are built from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorrt_rtx as trt
import torch

from tests.models import tiny_llama
from tests.unit.engine.reference import (
    EXECUTORS,
    MAX_SEQ_LEN,
    PROMPTS,
    TOLERANCE,
    Reference,
    compare,
    config_of,
    equals,
    on_network,
    on_torch,
    prefill,
)
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.network.families import read_config
from trtllm_engine.network.rope import rope_tables
from trtllm_engine.network.tensorrt_ops import TensorRtOps, TrtTensor
from trtllm_engine.network.torch_decoder import TorchDecoder

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}


def longrope(original: int) -> dict[str, Any]:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "partial_rotary_factor": 1.0,
        "short_factor": [1.0 + n / 8 for n in range(8)],
        "long_factor": [2.0 + n for n in range(8)],
    }
    return {"rope_parameters": rope, "original_max_position_embeddings": original}


MODELS: dict[str, dict[str, Any]] = {
    "grouped queries": {},
    "one key head for all queries": {"num_key_value_heads": 1},
    "a key head for each query": {"num_key_value_heads": 4},
    "tied embeddings": {"tie_word_embeddings": True},
    "heads wider than the hidden size": {"head_dim": 32},
    "biases everywhere": {"attention_bias": True, "mlp_bias": True},
    "llama3 rope scaling": {"rope_parameters": LLAMA3_ROPE},
    "linear rope scaling": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "large rope theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "dynamic rope scaling": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}},
    "yarn": {"rope_parameters": YARN},
    "yarn with its own temperature": {"rope_parameters": YARN | {"attention_factor": 0.7, "truncate": False}},
    "yarn, DeepSeek's temperature": {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}},
    "mistral without a window": {"architecture": "Mistral", "sliding_window": None},
    "qwen2 with a window in the upper layers": {
        "architecture": "Qwen2",
        "use_sliding_window": True,
        "sliding_window": 4,
        "max_window_layers": 1,
    },
    "qwen3 with biases": {"architecture": "Qwen3", "head_dim": 16, "attention_bias": True},
    "qwen3-moe, normalised routing": {
        "architecture": "Qwen3Moe",
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
    },
    "gemma2 without caps": {
        "architecture": "Gemma2",
        "head_dim": 16,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    "gemma3 with its full layers scaled": {
        "architecture": "Gemma3",
        "head_dim": 16,
        "sliding_window": 4,
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "phi3 for short sequences": {"architecture": "Phi3", "pad_token_id": 0, **longrope(original=64)},
    "phi3, a part of each head rotated": {
        "architecture": "Phi3",
        "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75},
    },
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("model", MODELS)
def test_prefill_and_decoding_give_the_logits_of_transformers(model: str, executor: str, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, **MODELS[model])
    assert equals(EXECUTORS[executor](folder), Reference(folder).answer())


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_a_prompt_in_chunks_gives_the_logits_of_the_whole_prompt(chunk: int, executor: str, tmp_path: Path) -> None:
    folder, prompt = tiny_llama(tmp_path), PROMPTS[0]
    decoder = EXECUTORS[executor](folder)
    for start in range(0, len(prompt), chunk):
        piece = prompt[start : start + chunk]
        logits = prefill(decoder, [piece, piece], start)
    assert (logits - Reference(folder).last_logits([prompt, prompt])).abs().max().item() < TOLERANCE


def test_rows_use_the_slots_that_they_are_given_and_no_others(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    config = config_of(folder)
    weights = dict(load_weights(folder, config, torch.float32))
    decoder = TorchDecoder(config, weights, torch.float32, "cpu", max_batch_size=5, max_seq_len=MAX_SEQ_LEN)
    for keys, values in decoder.caches.values():
        keys.fill_(torch.nan)
        values.fill_(torch.nan)
    prompt = torch.tensor([PROMPTS[0]])
    length = prompt.shape[1]
    decoder.forward(
        prompt, torch.arange(length)[None], torch.tensor([0]), torch.tensor([length - 1]), torch.tensor([3])
    )
    next_token = torch.tensor([[8]])
    at = torch.tensor([length])
    logits = decoder.forward(next_token, at[None], at, torch.tensor([0]), torch.tensor([3]))
    assert (logits - Reference(folder).last_logits([[*PROMPTS[0], 8]])).abs().max().item() < TOLERANCE
    assert all(keys[slot].isnan().all() for keys, _ in decoder.caches.values() for slot in (0, 1, 2, 4))


def test_padding_that_reaches_beyond_the_cache_is_dropped(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    sequence = [(7 * n) % 300 for n in range(MAX_SEQ_LEN)]
    decoder = on_torch(folder)
    prefill(decoder, [sequence[:-2]] * 2)
    tail = torch.tensor([[*sequence[-2:], 0, 0]] * 2)
    start = MAX_SEQ_LEN - 2
    logits = decoder.forward(
        tail, torch.arange(start, start + 4).expand(2, 4), torch.tensor([start] * 2), torch.tensor([1, 1])
    )
    assert (logits - Reference(folder).last_logits([sequence] * 2)).abs().max().item() < TOLERANCE


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.bfloat16, 0.25), (torch.float16, 0.03)], ids=["bfloat16", "float16"]
)
def test_half_precision_stays_near_transformers_in_the_same_precision(
    dtype: torch.dtype, tolerance: float, tmp_path: Path
) -> None:
    folder = tiny_llama(tmp_path)
    assert compare(on_torch(folder, dtype=dtype), Reference(folder, dtype).answer()).worst < tolerance


CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 112,
    "vocab_size": 320,
    "max_position_embeddings": 128,
}


def test_long_sequences_have_their_own_rotary_factors() -> None:
    """transformers switches when a sequence outgrows the short ones; an engine is for one length from the start."""
    rope = longrope(original=32)
    config = read_config({**CONFIG, **rope, "architectures": ["Phi3ForCausalLM"]})
    (short, _), (long, _) = rope_tables(config, 32), rope_tables(config, 33)
    assert not torch.equal(short, long[:32])
    factors = torch.tensor(rope["rope_parameters"]["long_factor"])
    stretched = 1.0 / (factors * 1e4 ** (torch.arange(0, 16, 2) / 16))
    torch.testing.assert_close(long[1] / config.rope_scaling.attention_factor, stretched.cos())


def test_yarn_reaches_as_far_as_it_stretches() -> None:
    """Configs that ask for it in the old way still name the length before it."""
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    assert read_config({**CONFIG, "rope_scaling": scaling}).max_positions == 512
    assert read_config({**CONFIG, "rope_scaling": {**scaling, "type": "linear"}}).max_positions == 128


class WrongScale(TensorRtOps):
    def attend(
        self, layer: int, query: TrtTensor, key: TrtTensor, value: TrtTensor, scale: float, *rest: Any
    ) -> TrtTensor:
        return super().attend(layer, query, key, value, 1.0, *rest)


class NoMask(TensorRtOps):
    def attend(
        self, layer: int, query: TrtTensor, key: TrtTensor, value: TrtTensor, scale: float, *rest: Any
    ) -> TrtTensor:
        context = super().attend(layer, query, key, value, scale, *rest)
        for index in range(self._network.num_layers):
            boundary = self._network.get_layer(index)
            if boundary.type == trt.LayerType.ATTENTION_INPUT:
                boundary.__class__ = trt.IAttentionInputLayer
                boundary.attention.causal_kind = trt.CausalMaskKind.NONE
        return context


class SwappedKeyAndValue(TensorRtOps):
    def attend(
        self, layer: int, query: TrtTensor, key: TrtTensor, value: TrtTensor, scale: float, *rest: Any
    ) -> TrtTensor:
        return super().attend(layer, query, value, key, scale, *rest)


class WrongHeadMerge(TensorRtOps):
    def merge_heads(self, x: TrtTensor) -> TrtTensor:
        layer = self._network.add_shuffle(x)
        layer.first_transpose = (0, 2, 3, 1)
        layer.reshape_dims = (0, 0, -1)
        return layer.get_output(0)


@pytest.mark.parametrize("broken", [WrongScale, NoMask, SwappedKeyAndValue, WrongHeadMerge])
def test_the_comparison_notices_a_broken_network(broken: type[TensorRtOps], tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    expected = Reference(folder).answer(steps=2)
    assert compare(on_network(folder, ops=broken), expected).worst > 100 * TOLERANCE
