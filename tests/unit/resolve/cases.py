"""Builders of what rules are asked about: specs for TensorRT-LLM, nodes, and what was found, by rule."""

from __future__ import annotations

from typing import Any, Final

from tests.builders import a_deployment_spec, smollm2_facts, some_defaults
from trtllm_engine.contract import ModelFacts, QuantAlgo, QuantFacts
from trtllm_operator.api.nodes import NodeFacts
from trtllm_operator.api.problems import Adjustment, Caution, Problem
from trtllm_operator.resolve.examination import Examination, examine
from trtllm_operator.resolve.rules.case import Case

Json = dict[str, Any]

GIB: Final = 2**30
H100: Final = "NVIDIA-H100-80GB-HBM3"
GATES: Final = frozenset({"CAP-1", "CAP-2", "CAP-8"})
"""What this version does not have yet; a test about another rule looks past them."""


def a_node(
    name: str = "gpu-a",
    *,
    product: str = H100,
    memory: int | None = 80 * GIB,
    gpus: int = 8,
    capability: str = "9.0",
    **fields: Any,
) -> NodeFacts:
    """A node with eight GPUs of 80 GiB."""
    return NodeFacts(
        name=name, gpu_product=product, gpu_memory_bytes=memory, gpus=gpus, compute_capability=capability, **fields
    )


def llama_8b(**changes: Any) -> ModelFacts:
    """The shape of Llama 3.1 8B."""
    shape: Json = {
        "hidden_size": 4096,
        "num_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tied_embeddings": False,
        "parameters": 8_030_261_248,
        "weight_bytes": 16_060_522_496,
    }
    return smollm2_facts(**{**shape, **changes})


def mixtral(**changes: Any) -> ModelFacts:
    """The shape of Mixtral 8x7B."""
    shape: Json = {
        "architecture": "MixtralForCausalLM",
        "family": "mixtral",
        "experts": 8,
        "experts_per_token": 2,
        "expert_intermediate_size": 14336,
        "expert_parameters": 32 * 8 * 3 * 4096 * 14336,
        "parameters": 46_702_792_704,
        "vocab_size": 32000,
        "weight_bytes": 93_405_585_408,
    }
    return llama_8b(**{**shape, **changes})


def gptq(size: int | None = 128, algo: QuantAlgo = QuantAlgo.W4A16) -> Json:
    """Facts of a checkpoint that GPTQ has quantised."""
    return {"quantization": "gptq", "quant": QuantFacts(algo=algo, group_size=size)}


def found(
    spec: Json, facts: ModelFacts | None = None, nodes: list[NodeFacts] | None = None, **defaults: Any
) -> Examination:
    """What is said about the small deployment with `spec` merged in."""
    return examine(Case.of(a_deployment_spec(**spec), some_defaults(**defaults), facts, nodes))


def for_engine(**changes: Any) -> Json:
    """A spec of nothing but a model, for TensorRT-LLM's engines."""
    return _bare(changes, engine={"toolchain": "tensorrt_llm"})


def for_pytorch(**changes: Any) -> Json:
    """A spec of nothing but a model, for TensorRT-LLM's PyTorch backend."""
    return _bare(changes, engine=None, backend="pytorch")


def _bare(changes: Json, **base: Any) -> Json:
    """Takes away what the small deployment writes."""
    sizes = {"maxBatchSize": None, "maxInputLen": None, "maxSeqLen": None}
    return {"dtype": None, **base, **changes, "buildConfig": {**sizes, **(changes.get("buildConfig") or {})}}


def refused(rule: str, result: Examination) -> Problem:
    """The one refusal by this rule."""
    (problem,) = [problem for problem in result.problems if problem.rule == rule]
    return problem


def warned(rule: str, result: Examination) -> Caution:
    """The one caution by this rule; nothing is refused but by the version."""
    assert not others(result), others(result)
    (caution,) = [caution for caution in result.cautions if caution.rule == rule]
    return caution


def adjusted(rule: str, result: Examination) -> dict[str, tuple[str | None, str]]:
    """Path -> from and to, of the changes by this rule; nothing is refused but by the version."""
    assert not others(result), others(result)
    return {a.path.removeprefix("spec."): (a.from_value, a.to_value) for a in by(rule, result)}


def by(rule: str, result: Examination) -> list[Adjustment]:
    return [adjustment for adjustment in result.adjustments if adjustment.rule == rule]


def others(result: Examination) -> list[Problem]:
    """Refusals that are not because of the version."""
    return [problem for problem in result.problems if problem.rule not in GATES]


def silent(rule: str, result: Examination) -> bool:
    """Whether the rule has nothing to say."""
    said: list[Problem | Caution | Adjustment] = [*result.problems, *result.cautions, *result.adjustments]
    return rule not in {finding.rule for finding in said}
