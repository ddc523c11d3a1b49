"""What people write in place of a field: other programs, command lines and other releases say it so.

Paths are in the reference's own spelling, from the root of the options or of a spec. Who looks a name up decides how
much its spelling may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MOVED: Final[Mapping[str, str]] = {
    # What command lines call it.
    "tp": "tensor_parallel_size",
    "tp_size": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "cp_size": "context_parallel_size",
    "ep": "moe_expert_parallel_size",
    "ep_size": "moe_expert_parallel_size",
    "moe_ep_size": "moe_expert_parallel_size",
    "moe_tp_size": "moe_tensor_parallel_size",
    "free_gpu_mem_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "kv_cache_free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "kv_cache_free_gpu_mem_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "max_tokens_in_paged_kv_cache": "kv_cache_config.max_tokens",
    "enable_kv_cache_reuse": "kv_cache_config.enable_block_reuse",
    "enable_chunked_context": "enable_chunked_prefill",
    "strip_plan": "build_config.use_strip_plan",
    "checkpoint_dir": "model",
    "tokenizer_dir": "tokenizer",
    "port": "serving.port",
    "served_model_name": "serving.model_name",
    # Wrappers around the reference.
    "model_name": "model",
    "model_path": "model",
    "model_dir": "model",
    # Other servers.
    "max_model_len": "max_seq_len",
    "max_num_seqs": "max_batch_size",
    "max_num_batched_tokens": "max_num_tokens",
    "enable_prefix_caching": "kv_cache_config.enable_block_reuse",
    "torch_dtype": "dtype",
    # Sections, and fields, of other releases.
    "plugin_config": "build_config.plugin_config",
    "kv_cache_config.dtype": "pytorch_backend_config.kv_cache_dtype",
    "kv_cache_config.tokens_per_block": "build_config.plugin_config.tokens_per_block",
    "enable_autotuner": "pytorch_backend_config.autotuner_enabled",
    "speculative_config.speculative_model_dir": "speculative_config.speculative_model",
    "cuda_graph_config.batch_sizes": "pytorch_backend_config.cuda_graph_batch_sizes",
    "cuda_graph_config.max_batch_size": "pytorch_backend_config.cuda_graph_max_batch_size",
    "cuda_graph_config.enable_padding": "pytorch_backend_config.cuda_graph_padding_enabled",
    "cuda_graph_config.padding_enabled": "pytorch_backend_config.cuda_graph_padding_enabled",
    "moe_config.backend": "pytorch_backend_config.moe_backend",
    "moe_config.max_num_tokens": "pytorch_backend_config.moe_max_num_tokens",
    "moe_config.load_balancer": "pytorch_backend_config.moe_load_balancer",
    "torch_compile_config.enable_fullgraph": "pytorch_backend_config.torch_compile_fullgraph",
    "torch_compile_config.enable_inductor": "pytorch_backend_config.torch_compile_inductor_enabled",
    "torch_compile_config.enable_piecewise_cuda_graph": "pytorch_backend_config.torch_compile_piecewise_cuda_graph",
    "torch_compile_config.enable_userbuffers": "pytorch_backend_config.torch_compile_enable_userbuffers",
    "lora_config.lora_dir": "build_config.lora_config.lora_dir",
    "lora_config.lora_ckpt_source": "build_config.lora_config.lora_ckpt_source",
    "lora_config.lora_target_modules": "build_config.lora_config.lora_target_modules",
    "lora_config.trtllm_modules_to_hf_modules": "build_config.lora_config.trtllm_modules_to_hf_modules",
    "lora_config.max_lora_rank": "build_config.lora_config.max_lora_rank",
    "lora_config.max_loras": "max_loras",
    "lora_config.max_cpu_loras": "max_cpu_loras",
}
"""What has another name or another section here, and means the same."""

SIMILAR: Final[Mapping[str, str]] = {
    "gpu_memory_utilization": "kv_cache_config.free_gpu_memory_fraction",
    "max_output_len": "max_seq_len",
    "quantization": "quant_config.quant_algo",
    "world_size": "auto_parallel_world_size",
}
"""What means something else of the same kind: worth a hint, not a translation."""

IMPLIED: Final[Mapping[str, tuple[str, bool]]] = {
    "cuda_graph_config": ("pytorch_backend_config.use_cuda_graph", True),
    "torch_compile_config": ("pytorch_backend_config.torch_compile_enabled", True),
    "lora_config": ("enable_lora", True),
}
"""Sections of later versions whose presence alone says something."""

WRAPPERS: Final = ("engine_args", "llm_args", "extra_llm_api_options")
"""Keys around the options."""

_SERVER: Final = "the operator runs the server, which has no such switch"
_SPLIT: Final = "prefill and decode on different pods are not in this version"
_CLUSTERS: Final = "expert clusters came after the reference's version"
_GONE: Final = "the reference's version has no such option any more"
NO_PLACE: Final[Mapping[str, str]] = {
    "host": "a Service gives the address",
    "log_level": _SERVER,
    "num_postprocess_workers": _SERVER,
    "reasoning_parser": _SERVER,
    "tool_parser": _SERVER,
    "chat_template": "the one beside the model is used",
    "metadata_server_config_file": _SPLIT,
    "server_role": _SPLIT,
    "cache_transceiver_config": _SPLIT,
    "cluster_size": _CLUSTERS,
    "moe_cluster_parallel_size": _CLUSTERS,
    "sampler_type": "came after the reference's version; pytorchBackendConfig.enableTrtllmSampler chooses the C++ one",
    "checkpoint_format": "the format is told from the checkpoint's config.json",
    "output_dir": "an engine lies on the claim that the operator makes for it",
    "workers": "each rank is built by a pod of its own",
    "model_config": "the sizes come from the checkpoint",
    "logits_dtype": "it is part of the checkpoint",
    "cluster_key": "the planner reads the nodes",
    "use_custom_all_reduce": _GONE,
    "enable_xqa": _GONE,
    "gpt_attention_plugin_v2": _GONE,
}
"""What a spec cannot say, and why."""

REFUSED: Final[Mapping[str, tuple[Any, str]]] = {
    "trust_remote_code": (True, "code from a model's repository is never run"),
}
"""Values that are refused under the right name as well, and why."""

SPELLINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "backend": {"_autodeploy": "autodeploy", "torch": "pytorch", "trt": None, "tensorrt": None, "cpp": None},
    "dtype": {
        "fp16": "float16",
        "half": "float16",
        "bf16": "bfloat16",
        "fp32": "float32",
        "float": "float32",
    },
    "quant_config.quant_algo": {
        "int8_wo": "W8A16",
        "int4_wo": "W4A16",
        "int4_awq": "W4A16_AWQ",
        "int8_sq": "W8A8_SQ_PER_CHANNEL",
        "int4_gptq": "W4A16_GPTQ",
        "fp8_pb_wo": "FP8_BLOCK_SCALES",
        "qserve": "W4A8_QSERVE_PER_GROUP",
        "full_prec": "NO_QUANT",
    },
    "speculative_config.decoding_type": {"eagle3": "Eagle"},
}
"""Other words for a value; None: what an unset field means."""


def camel_case(name: str) -> str:
    """The reference's name as a resource has it. Only each word's first letter changes, so it can be told back."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def camel_path(path: str) -> str:
    """A path in the reference's spelling as a spec writes it."""
    return ".".join(map(camel_case, path.split(".")))


def plain(name: str) -> str:
    """Without what spellings differ in."""
    return name.replace("_", "").replace("-", "").lower()


def plain_path(path: str) -> str:
    """The same of every part."""
    return ".".join(map(plain, path.split(".")))
