"""LlmArgs `build_config.plugin_config`: which kernels the network is made of.

A plugin that is off in the reference is None there, which JSON cannot tell from a field that was not written:
it is spelled `disable`, as on the command line of trtllm-build.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..schema import ApiModel
from .facts import Ref

OFF: Literal["disable"] = "disable"

PluginType = Literal["auto", "float16", "float32", "bfloat16", "int32", "disable"]
GemmType = Literal["auto", "float16", "float32", "bfloat16", "int32", "fp8", "nvfp4", "disable"]
Fp8Only = Literal["fp8", "disable"]


class PluginConfig(ApiModel):
    """Kernels of the network. A plugin takes a type, auto (the engine's dtype) or disable."""

    dtype: Annotated[
        Literal["float16", "float32", "bfloat16", "int32"] | None,
        Ref("float16", "build", here="the engine's dtype"),
    ] = None
    """What auto stands for."""
    bert_attention_plugin: Annotated[PluginType | None, Ref("auto", "build")] = None
    """Attention of encoders."""
    gpt_attention_plugin: Annotated[PluginType | None, Ref("auto", "build")] = None
    """Attention of decoders."""
    gemm_plugin: Annotated[GemmType | None, Ref(None, "build")] = None
    """Matrix products by cuBLASLt. Unset: off, except nvfp4 for NVFP4 models."""
    gemm_swiglu_plugin: Annotated[Fp8Only | None, Ref(None, "build")] = None
    """Matrix product and SwiGLU in one; needs useFusedMlp and FP8."""
    fp8_rowwise_gemm_plugin: Annotated[PluginType | None, Ref(None, "build")] = None
    """Row-wise FP8 matrix products."""
    qserve_gemm_plugin: Annotated[PluginType | None, Ref(None, "build")] = None
    """QServe's W4A8 matrix products; follows from the quantisation."""
    identity_plugin: Annotated[PluginType | None, Ref(None, "build")] = None
    """Copies its input, for debugging."""
    nccl_plugin: Annotated[PluginType | None, Ref("auto", "build", here="off for one rank, else auto")] = None
    """Communication between ranks."""
    lora_plugin: Annotated[PluginType | None, Ref(None, "build")] = None
    """LoRA; set by enableLora."""
    dora_plugin: Annotated[bool | None, Ref(False, "build")] = None
    """DoRA."""
    weight_only_groupwise_quant_matmul_plugin: Annotated[PluginType | None, Ref(None, "build")] = None
    """AWQ and GPTQ matrix products; follows from the quantisation."""
    weight_only_quant_matmul_plugin: Annotated[PluginType | None, Ref(None, "build")] = None
    """Weight-only matrix products; follows from the quantisation."""
    smooth_quant_plugins: Annotated[bool | None, Ref(True, "build")] = None
    """Whether SmoothQuant may use its plugins."""
    smooth_quant_gemm_plugin: Annotated[PluginType | None, Ref(None, "build")] = None
    """SmoothQuant's matrix products; follows from the quantisation."""
    layernorm_quantization_plugin: Annotated[PluginType | None, Ref(None, "build")] = None
    """LayerNorm and quantisation in one; follows from the quantisation."""
    rmsnorm_quantization_plugin: Annotated[PluginType | None, Ref(None, "build")] = None
    """RMSNorm and quantisation in one; follows from the quantisation."""
    quantize_per_token_plugin: Annotated[bool | None, Ref(False, "build")] = None
    """Quantisation per token; follows from the quantisation."""
    quantize_tensor_plugin: Annotated[bool | None, Ref(False, "build")] = None
    """Quantisation per tensor; follows from the quantisation."""
    moe_plugin: Annotated[PluginType | None, Ref("auto", "build")] = None
    """Mixture of experts; disable builds it from plain layers."""
    mamba_conv1d_plugin: Annotated[PluginType | None, Ref("auto", "build")] = None
    """Convolution of Mamba."""
    low_latency_gemm_plugin: Annotated[Fp8Only | None, Ref(None, "build")] = None
    """Matrix products of small batches."""
    low_latency_gemm_swiglu_plugin: Annotated[Fp8Only | None, Ref(None, "build")] = None
    """Matrix product and SwiGLU of small batches in one; needs useFusedMlp and FP8."""
    gemm_allreduce_plugin: Annotated[Literal["float16", "bfloat16", "disable"] | None, Ref(None, "build")] = None
    """Matrix product and sum over ranks in one."""
    context_fmha: Annotated[bool | None, Ref(True, "build")] = None
    """Fused attention for prompts."""
    bert_context_fmha_fp32_acc: Annotated[bool | None, Ref(False, "build")] = None
    """Accumulate the fused attention of encoders in FP32."""
    paged_kv_cache: Annotated[bool | None, Ref(None, "build")] = None
    """Paged KV cache. Unset: follows kvCacheType."""
    remove_input_padding: Annotated[bool | None, Ref(True, "build")] = None
    """Pack the inputs of a batch."""
    norm_quant_fusion: Annotated[bool | None, Ref(False, "build")] = None
    """Norm and quantisation in one; NVFP4 Llama without reduceFusion only."""
    reduce_fusion: Annotated[bool | None, Ref(False, "build")] = None
    """Sum over ranks and norm in one; needs tensorParallelSize above 1."""
    user_buffer: Annotated[bool | None, Ref(False, "build")] = None
    """Communicate without copies; needs reduceFusion."""
    tokens_per_block: Annotated[int | None, Field(ge=1, le=65536), Ref(32, "build")] = None
    """Tokens in a block of the KV cache."""
    use_paged_context_fmha: Annotated[bool | None, Ref(True, "build")] = None
    """Attention of prompts over the paged cache; reuse, chunked prefill and Eagle need it."""
    use_fp8_context_fmha: Annotated[bool | None, Ref(True, "build")] = None
    """Attention of prompts in FP8, for FP8 models."""
    fuse_fp4_quant: Annotated[bool | None, Ref(False, "build")] = None
    """FP4 quantisation inside attention."""
    multiple_profiles: Annotated[bool | None, Ref(False, "build")] = None
    """Several optimisation profiles; excludes optNumTokens."""
    paged_state: Annotated[bool | None, Ref(True, "build")] = None
    """Paged state of recurrent models."""
    streamingllm: Annotated[bool | None, Ref(False, "build")] = None
    """StreamingLLM; needs maxAttentionWindow and sinkTokenLength of kvCacheConfig."""
    manage_weights: Annotated[bool | None, Ref(False, "build")] = None
    """Keep weights outside the plan; set by fastBuild."""
    use_fused_mlp: Annotated[bool | None, Ref(True, "build")] = None
    """Gate and up projection in one."""
    pp_reduce_scatter: Annotated[bool | None, Ref(False, "build")] = None
    """Send less between stages; Mixtral only."""
