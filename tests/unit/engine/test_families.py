"""Every family on every mapping computes what transformers computes, on torch and as a network for TensorRT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.models import TINY_FAMILIES, tiny_llama
from tests.unit.engine.reference import (
    EXECUTORS,
    ONE,
    PROMPTS,
    TOLERANCE,
    Expected,
    Reference,
    compare,
    equals,
    on_network,
    prefill,
)
from trtllm_engine.contract import Mapping
from trtllm_engine.network.families import FAMILIES
from trtllm_engine.network.tensorrt_ops import TensorRtOps, TrtTensor

MAPPINGS = {
    "tp1": ONE,
    "tp2": Mapping(tp=2),
    "pp2": Mapping(pp=2),
    "tp2 pp2": Mapping(tp=2, pp=2),
}
MIXTURES = {"mixtral", "qwen3_moe"}


@dataclass(frozen=True)
class Model:
    folder: Path
    reference: Reference
    expected: Expected


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Model]:
    """Makes a family's tiny model, and asks transformers about it, once."""
    made: dict[str, Model] = {}

    def model(family: str, **overrides: Any) -> Model:
        key = repr((family, sorted(overrides.items())))
        if key not in made:
            folder = tiny_llama(
                tmp_path_factory.mktemp(family), **{"vocab_size": 320, **TINY_FAMILIES[family], **overrides}
            )
            reference = Reference(folder)
            made[key] = Model(folder, reference, reference.answer())
        return made[key]

    return model


def test_every_family_has_a_tiny_model() -> None:
    assert [family.name for family in FAMILIES] == list(TINY_FAMILIES)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_ranks_together_give_the_logits_and_the_text_of_transformers(
    family: str, mapping: str, executor: str, models: Callable[..., Model]
) -> None:
    model = models(family)
    assert equals(EXECUTORS[executor](model.folder, MAPPINGS[mapping]), model.expected)


@pytest.mark.parametrize("mapping, executor", [("tp1", "torch"), ("tp1", "TensorRT network"), ("tp2 pp2", "torch")])
@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_a_prompt_in_chunks_is_a_prompt(family: str, mapping: str, executor: str, models: Callable[..., Model]) -> None:
    model, prompt = models(family), [*PROMPTS[0], *PROMPTS[1]]
    decoder = EXECUTORS[executor](model.folder, MAPPINGS[mapping])
    for start in range(0, len(prompt), 3):
        logits = prefill(decoder, [prompt[start : start + 3]] * 2, start)
    assert (logits - model.reference.last_logits([prompt, prompt])).abs().max().item() < TOLERANCE


ODD_SPLITS: dict[str, tuple[str, dict[str, Any], Mapping]] = {
    "more ranks than key heads": ("llama", {}, Mapping(tp=4)),
    "three ranks, one key head": (
        "llama",
        {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 1, "intermediate_size": 96},
        Mapping(tp=3),
    ),
    "a vocabulary that does not divide": ("llama", {"vocab_size": 317}, Mapping(tp=2)),
    "a tied one that is on both ends": ("llama", {"tie_word_embeddings": True}, Mapping(tp=2, pp=2)),
    "layers that do not divide": ("llama", {"num_hidden_layers": 3}, Mapping(pp=2)),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}, Mapping(tp=2)),
    "different experts": ("mixtral", {}, Mapping(tp=2, moe_ep=2)),
    "parts of different experts": ("mixtral", {}, Mapping(tp=4, moe_tp=2, moe_ep=2)),
    "different experts, dense layers": ("qwen3_moe", {}, Mapping(tp=2, moe_ep=2)),
    "fused tensors, four ranks": ("phi3", {}, Mapping(tp=4)),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("split", ODD_SPLITS)
def test_odd_splits_are_exact_too(split: str, executor: str, models: Callable[..., Model]) -> None:
    family, overrides, mapping = ODD_SPLITS[split]
    model = models(family, **overrides)
    assert equals(EXECUTORS[executor](model.folder, mapping), model.expected)


class NoReduction(TensorRtOps):
    def all_reduce(self, x: TrtTensor) -> TrtTensor:
        return x


class NoWindow(TensorRtOps):
    def _mask(self, window: int | None) -> TrtTensor:
        return super()._mask(None)


class NoCap(TensorRtOps):
    def soft_cap(self, x: TrtTensor, cap: float) -> TrtTensor:
        return x


class WrongExperts(TensorRtOps):
    def route(self, x: TrtTensor, router: str, chosen: int, normalized: bool, experts: range) -> TrtTensor:
        return super().route(x, router, chosen, normalized, range(len(experts)))


BROKEN: dict[str, tuple[type[TensorRtOps], str, Mapping]] = {
    "parts that are not added up": (NoReduction, "llama", Mapping(tp=2)),
    "a window that is ignored": (NoWindow, "mistral", ONE),
    "caps that are ignored": (NoCap, "gemma2", ONE),
    "another rank's experts": (WrongExperts, "mixtral", Mapping(tp=2, moe_ep=2)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_comparison_notices_a_broken_network(name: str, models: Callable[..., Model]) -> None:
    ops, family, mapping = BROKEN[name]
    model = models(family)
    assert compare(on_network(model.folder, mapping, ops), model.expected).worst > 100 * TOLERANCE
