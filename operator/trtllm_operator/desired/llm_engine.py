"""The LLMEngine that a deployment asks for when nobody has one with the key."""

from __future__ import annotations

from typing import cast

from trtllm_engine.contract import DUMMY, QuantArgs

from ..api import names
from ..api.deployment import LLMDeployment
from ..api.engine import LLMEngine, LLMEngineSpec
from ..api.engine_options import Target
from ..api.llm_args import BuildConfig, Dtype, QuantAlgo, QuantConfig
from ..resolve.defaults import Defaults
from ..resolve.resolution import Resolution
from .metadata import Manifest, unowned


def llm_engine(deployment: LLMDeployment, resolution: Resolution, defaults: Defaults) -> Manifest:
    """Everything that was resolved is written down and pinned, so that the engine resolves to the same key again.

    Without an owner: others of the namespace may share it, and retention ends it.
    """
    spec, args = deployment.valid_spec, resolution.args
    options, mapping = spec.engine, resolution.mapping
    capability = resolution.target.compute_capability
    engine = LLMEngineSpec(
        model=spec.model,
        revision=resolution.facts.commit,
        model_digest=resolution.facts.digest,
        model_volume=spec.model_volume,
        hub_token_secret_ref=spec.hub_token_secret_ref,
        dtype=cast(Dtype, args.dtype),
        load_format="dummy" if args.load_format == DUMMY else None,
        quant_config=_quantised(args.quant) if args.quant else QuantConfig(),
        tensor_parallel_size=mapping.tp,
        pipeline_parallel_size=mapping.pp,
        context_parallel_size=mapping.cp,
        moe_tensor_parallel_size=mapping.moe_tp,
        moe_expert_parallel_size=mapping.moe_ep,
        gpus_per_node=spec.gpus_per_node,
        build_config=BuildConfig(
            max_batch_size=args.max_batch_size, max_input_len=args.max_input_len, max_seq_len=args.max_seq_len
        ),
        toolchain=resolution.toolchain,
        toolchain_version=resolution.toolchain_version,
        image=resolution.image,
        target=Target(compute_capability=capability, gpu_product=options.target.gpu_product),
        storage=options.storage,
        retention=options.retention,
        resources=options.resources,
        deadline_seconds=options.deadline_seconds,
        image_pull_secrets=spec.pod_template.image_pull_secrets,
        scheduling=spec.scheduling,
    )
    key = resolution.engine_key
    return {
        "apiVersion": names.API_VERSION,
        "kind": LLMEngine.KIND,
        "metadata": unowned(
            deployment.meta.namespace, names.engine(spec.model, key), {names.KEY_LABEL: names.key_label(key)}
        ),
        "spec": engine.to_json(),
    }


def _quantised(quant: QuantArgs) -> QuantConfig:
    return QuantConfig(quant_algo=QuantAlgo(quant.algo.value), group_size=quant.group_size)
