"""A real decoder with random weights, small enough for milliseconds per step."""

from __future__ import annotations

import torch

from trtllm_engine.network.config import DecoderConfig, RopeScaling
from trtllm_engine.network.parameters import parameters, weight_name
from trtllm_engine.network.torch_decoder import TorchDecoder
from trtllm_engine.serve.torch_runtime import TorchRuntime


def tiny_runtime(*, slots: int, context: int, device: str = "cpu") -> TorchRuntime:
    """Float32, two layers, 256 tokens: a byte-level tokenizer fits."""
    config = DecoderConfig(
        family="llama",
        architecture="LlamaForCausalLM",
        hidden_size=48,
        num_layers=2,
        num_heads=6,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=96,
        vocab_size=256,
        norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=RopeScaling(),
        max_positions=context,
        tied_embeddings=False,
    )
    luck = torch.Generator().manual_seed(0)
    weights = {
        weight_name(role, layer): torch.randn(shape, generator=luck) * 0.3 for role, layer, shape in parameters(config)
    }
    return TorchRuntime(TorchDecoder(config, weights, torch.float32, device, slots, context), max_input_len=context)
