"""The decoder computes what transformers computes, on torch and as the network that TensorRT engines are built from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
import tensorrt_rtx as trt
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.models import tiny_llama
from tests.unit.engine.network_walk import WalkedDecoder
from trtllm_engine.checkpoint.folder import read_json
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.families import read_config
from trtllm_engine.network.tensorrt_ops import TensorRtOps, TrtTensor, define_network
from trtllm_engine.network.torch_decoder import TorchDecoder

TOLERANCE = 1e-4
"""Absolute, on float32 logits of size 10; what is left is the order of additions."""

MAX_SEQ_LEN = 32
PROMPTS = ([11, 42, 7, 300, 5, 123, 64], [9, 250, 31])
"""Two prompts of different lengths, so that the shorter one is padded on the right."""

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}

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
    "qwen2": {"architecture": "Qwen2"},
    "mistral": {"architecture": "Mistral", "sliding_window": None},
}


class Decoder(Protocol):
    def forward(
        self, input_ids: Tensor, position_ids: Tensor, write_indices: Tensor, last_token_ids: Tensor, /
    ) -> Tensor: ...


Executor = Callable[[Path], Decoder]


def on_torch(folder: Path, dtype: torch.dtype = torch.float32) -> TorchDecoder:
    config = config_of(folder)
    weights = dict(load_weights(folder, config, dtype))
    return TorchDecoder(config, weights, dtype, "cpu", max_batch_size=2, max_seq_len=MAX_SEQ_LEN)


def on_network(folder: Path, ops: type[TensorRtOps] = TensorRtOps) -> WalkedDecoder:
    config = config_of(folder)
    weights = dict(load_weights(folder, config, torch.float32))
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network(0)
    kept = define_network(trt, network, config, weights, torch.float32, MAX_SEQ_LEN, ops)
    return WalkedDecoder(trt, network, kept.constants, batch=2)


EXECUTORS: dict[str, Executor] = {"torch": on_torch, "TensorRT network": on_network}


def config_of(folder: Path) -> DecoderConfig:
    return read_config(read_json(folder / "config.json"))


class Reference:
    """transformers, one sequence at a time, without a cache and without padding."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)

    @torch.inference_mode()
    def last_logits(self, sequences: list[list[int]]) -> Tensor:
        return torch.stack([self._model(torch.tensor([tokens])).logits[0, -1].float() for tokens in sequences])


def prefill(decoder: Decoder, prompts: list[list[int]], start: int = 0) -> Tensor:
    """One call for all prompts, short ones padded on the right."""
    width = max(map(len, prompts))
    return decoder.forward(
        torch.tensor([prompt + [0] * (width - len(prompt)) for prompt in prompts]),
        torch.arange(start, start + width).expand(len(prompts), width),
        torch.full((len(prompts),), start),
        torch.tensor([len(prompt) - 1 for prompt in prompts]),
    )


def decode(decoder: Decoder, sequences: list[list[int]]) -> Tensor:
    """One call for the last token of each sequence, each at its own position."""
    last = torch.tensor([len(tokens) - 1 for tokens in sequences])
    return decoder.forward(
        torch.tensor([tokens[-1:] for tokens in sequences]),
        last[:, None],
        last,
        torch.zeros(len(sequences), dtype=torch.int32),
    )


def worst_difference(decoder: Decoder, reference: Reference, steps: int = 8) -> float:
    """Largest difference of logits over the prefill of a padded batch and `steps` greedy steps after it."""
    sequences = [list(prompt) for prompt in PROMPTS]
    logits = prefill(decoder, sequences)
    worst = 0.0
    for _ in range(steps):
        expected = reference.last_logits(sequences)
        worst = max(worst, (logits - expected).abs().max().item())
        for tokens, choice in zip(sequences, expected.argmax(-1).tolist(), strict=True):
            tokens.append(choice)
        logits = decode(decoder, sequences)
    return max(worst, (logits - reference.last_logits(sequences)).abs().max().item())


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("model", MODELS)
def test_prefill_and_decoding_give_the_logits_of_transformers(model: str, executor: str, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, **MODELS[model])
    assert worst_difference(EXECUTORS[executor](folder), Reference(folder)) < TOLERANCE


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
    for keys, values in decoder.caches:
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
    assert all(keys[slot].isnan().all() for keys, _ in decoder.caches for slot in (0, 1, 2, 4))


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
    assert worst_difference(on_torch(folder, dtype), Reference(folder, dtype)) < tolerance


class WrongScale(TensorRtOps):
    def attend(self, layer: int, query: TrtTensor, key: TrtTensor, value: TrtTensor, scale: float) -> TrtTensor:
        return super().attend(layer, query, key, value, 1.0)


class NoMask(TensorRtOps):
    def attend(self, layer: int, query: TrtTensor, key: TrtTensor, value: TrtTensor, scale: float) -> TrtTensor:
        context = super().attend(layer, query, key, value, scale)
        for index in range(self._network.num_layers):
            boundary = self._network.get_layer(index)
            if boundary.type == trt.LayerType.ATTENTION_INPUT:
                boundary.__class__ = trt.IAttentionInputLayer
                boundary.attention.causal_kind = trt.CausalMaskKind.NONE
        return context


class SwappedKeyAndValue(TensorRtOps):
    def attend(self, layer: int, query: TrtTensor, key: TrtTensor, value: TrtTensor, scale: float) -> TrtTensor:
        return super().attend(layer, query, value, key, scale)


class WrongHeadMerge(TensorRtOps):
    def merge_heads(self, x: TrtTensor) -> TrtTensor:
        layer = self._network.add_shuffle(x)
        layer.first_transpose = (0, 2, 3, 1)
        layer.reshape_dims = (0, 0, self._config.num_heads * self._config.head_dim)
        return layer.get_output(0)


@pytest.mark.parametrize("broken", [WrongScale, NoMask, SwappedKeyAndValue, WrongHeadMerge])
def test_the_comparison_notices_a_broken_network(broken: type[TensorRtOps], tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    assert worst_difference(on_network(folder, broken), Reference(folder), steps=2) > 100 * TOLERANCE
