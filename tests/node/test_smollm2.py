"""The real small model: torch and the network of its TensorRT engine answer like transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorrt_rtx as trt
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.models import smollm2
from tests.unit.engine.network_walk import WalkedDecoder
from trtllm_engine.checkpoint.folder import read_json
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.network.families import read_config
from trtllm_engine.network.tensorrt_ops import define_network
from trtllm_engine.network.torch_decoder import TorchDecoder

pytestmark = pytest.mark.model

NEW_TOKENS = 8
MAX_SEQ_LEN = 64
TOLERANCE = 1e-4
"""Absolute, on float32 logits of size 36; what is left is the order of additions."""
BFLOAT16_TOLERANCE = 0.05
"""Relative to the largest logit: bfloat16 keeps 8 bits, and thirty layers round one after another."""

PROMPTS = (
    "What is the capital of France?",
    "Name three primary colors.",
    "How many days are in a week?",
    "Who wrote Romeo and Juliet?",
    "What is 2 + 2?",
    "Translate to Spanish: good morning.",
    "What do bees make?",
    "Is the sun a star?",
    "List two animals that can fly.",
    "What is the boiling point of water?",
    "Complete: roses are red, violets are",
    "What is the opposite of hot?",
    "Write a haiku about rain.",
    "Which planet is closest to the sun?",
    "What is H2O?",
    "Name a programming language.",
    "How do you say thank you in French?",
    "What color is grass?",
    "Who painted the Mona Lisa?",
    "Count from one to five.",
)


@pytest.fixture(scope="module", autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder() -> Path:
    return smollm2()


@pytest.fixture(scope="module")
def prompts(folder: Path) -> list[list[int]]:
    """The prompts as chats, tokenized by the model's own template."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [
        tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False)
        for prompt in PROMPTS
    ]
    return [tokenizer(str(text), add_special_tokens=False)["input_ids"] for text in texts]


class Answers:
    """Greedy answers of all prompts in one padded batch, and the logits of every step."""

    def __init__(self, tokens: list[list[int]], logits: list[Tensor]) -> None:
        self.tokens = tokens
        self.logits = torch.stack(logits)
        """float32 [steps, prompts, V]."""


def answer(
    decoder: TorchDecoder | WalkedDecoder, prompts: list[list[int]], follow: list[list[int]] | None = None
) -> Answers:
    """Prefill, then NEW_TOKENS steps; `follow` gives the tokens to go on with instead of the decoder's own."""
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    width = int(lengths.max())
    logits = [
        decoder.forward(
            torch.tensor([prompt + [0] * (width - len(prompt)) for prompt in prompts]),
            torch.arange(width).expand(len(prompts), width),
            torch.zeros(len(prompts), dtype=torch.int64),
            lengths - 1,
        )
    ]
    chosen: list[Tensor] = []
    for step in range(NEW_TOKENS):
        chosen.append(logits[-1].argmax(-1) if follow is None else torch.tensor([tokens[step] for tokens in follow]))
        at = lengths + step
        logits.append(decoder.forward(chosen[-1][:, None], at[:, None], at, torch.zeros_like(at)))
    return Answers(torch.stack(chosen, dim=1).tolist(), logits)


def reference_answers(
    folder: Path, prompts: list[list[int]], dtype: torch.dtype, follow: list[list[int]] | None = None
) -> Answers:
    """transformers' generate, prompt by prompt; or its logits along the tokens of `follow`."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    tokens: list[list[int]] = []
    logits: list[Tensor] = []
    with torch.inference_mode():
        for index, prompt in enumerate(prompts):
            if follow is None:
                output = model.generate(
                    torch.tensor([prompt]),
                    attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                    do_sample=False,
                    max_new_tokens=NEW_TOKENS,
                    min_new_tokens=NEW_TOKENS,
                    eos_token_id=None,
                    pad_token_id=0,
                )
                tokens.append(output[0, len(prompt) :].tolist())
            else:
                tokens.append(follow[index])
            logits.append(model(torch.tensor([[*prompt, *tokens[-1]]])).logits[0, len(prompt) - 1 :].float())
    return Answers(tokens, list(torch.stack(logits, dim=1)))


@pytest.fixture(scope="module")
def reference(folder: Path, prompts: list[list[int]]) -> Answers:
    return reference_answers(folder, prompts, torch.float32)


def torch_decoder(folder: Path, dtype: torch.dtype) -> TorchDecoder:
    config = read_config(read_json(folder / "config.json"))
    return TorchDecoder(config, dict(load_weights(folder, config, dtype)), dtype, "cpu", len(PROMPTS), MAX_SEQ_LEN)


def relative_difference(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).abs().max() / expected.abs().max()).item()


def test_the_torch_engine_gives_transformers_greedy_answers(
    folder: Path, prompts: list[list[int]], reference: Answers
) -> None:
    found = answer(torch_decoder(folder, torch.float32), prompts)
    assert found.tokens == reference.tokens
    assert (found.logits - reference.logits).abs().max().item() < TOLERANCE


def test_the_network_of_the_engine_gives_the_same_answers(
    folder: Path, prompts: list[list[int]], reference: Answers
) -> None:
    config = read_config(read_json(folder / "config.json"))
    weights = dict(load_weights(folder, config, torch.float32))
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network(0)
    kept = define_network(trt, network, config, weights, torch.float32, MAX_SEQ_LEN)
    found = answer(WalkedDecoder(trt, network, kept.constants, batch=len(prompts)), prompts)
    assert found.tokens == reference.tokens
    assert (found.logits - reference.logits).abs().max().item() < TOLERANCE


def test_bfloat16_stays_near_transformers_in_bfloat16(
    folder: Path, prompts: list[list[int]], reference: Answers
) -> None:
    """Along the same tokens, since one flipped near-tie would make the rest incomparable."""
    few, follow = prompts[:4], reference.tokens[:4]
    expected = reference_answers(folder, few, torch.bfloat16, follow)
    found = answer(torch_decoder(folder, torch.bfloat16), few, follow)
    assert relative_difference(found.logits, expected.logits) < BFLOAT16_TOLERANCE
