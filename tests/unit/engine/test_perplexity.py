"""How much the real small model loses when its weights are rounded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoTokenizer

from tests.models import smollm2
from tests.unit.engine.reference import config_of
from trtllm_engine.build.calibration import calibrate
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.contract import CalibArgs, QuantAlgo, QuantArgs, Step
from trtllm_engine.network import torch_decoder
from trtllm_engine.network.scheme import scheme_of
from trtllm_engine.network.torch_decoder import TorchDecoder
from trtllm_engine.network.torch_ops import TorchOps
from trtllm_engine.progress import Reporter

pytestmark = pytest.mark.model

TEXT = """\
The lighthouse stood at the end of a narrow spit of land, where the river met the sea. For nearly a hundred \
years its keepers had climbed the iron stairs every evening to light the lamp, and every morning to put it out \
again. In winter the waves broke over the rocks and covered the windows with salt, so that the glass had to be \
washed by hand before dark. In summer, families came from the village with baskets of bread and fruit, and the \
children counted the boats that passed on their way to the harbour.

When the lamp was replaced by an electric one, the last keeper was given a small house near the church. He \
kept a notebook in which he wrote down the weather, the direction of the wind, and the names of the ships. He \
said that it was a habit, and that a day which had not been written down was easily lost. After his death the \
notebooks were found in a wooden chest. There were forty of them, one for each year, and in all of them there \
was not a single day missing.
"""

BOUNDS = {
    "8 bits": (QuantArgs(algo=QuantAlgo.W8A16), 1.01),
    "4 bits by 32": (QuantArgs(algo=QuantAlgo.W4A16, group_size=32), 1.25),
    "4 bits by 64": (QuantArgs(algo=QuantAlgo.W4A16, group_size=64), 1.45),
}
"""How many times the perplexity may be what it is without rounding. 576 columns are no groups of 128."""

FP8_BOUND = 1.05
"""Likewise, with activations rounded too, by scales that were found with other texts."""


class AllTokens(TorchOps):
    """Keeps what every token leads to, where a server wants the last one only."""

    def pick(self, x: Tensor, index: Tensor) -> Tensor:
        return x


@pytest.fixture(scope="module")
def model() -> Path:
    return smollm2()


def perplexity(model: Path, quant: QuantArgs | None, inputs: Mapping[str, float] | None = None) -> float:
    config = config_of(model)
    tokens = torch.tensor([AutoTokenizer.from_pretrained(model)(TEXT).input_ids])
    length = tokens.shape[1]
    weights = dict(load_weights(model, config, torch.float32, scheme=scheme_of(quant), inputs=inputs))
    decoder = TorchDecoder(config, weights, torch.float32, "cpu", max_batch_size=1, max_seq_len=length)
    zero = torch.zeros(1, dtype=torch.long)
    logits = decoder.forward(tokens, torch.arange(length)[None], zero, zero)
    return functional.cross_entropy(logits[0, :-1], tokens[0, 1:]).exp().item()


def test_perplexity_stays_near_that_of_the_plain_weights(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_decoder, "TorchOps", AllTokens)
    plain = perplexity(model, None)
    ratios = {name: perplexity(model, quant) / plain for name, (quant, _) in BOUNDS.items()}
    assert plain < 30
    assert ratios["8 bits"] < ratios["4 bits by 32"] < ratios["4 bits by 64"]
    assert {name: ratio for name, ratio in ratios.items() if ratio > BOUNDS[name][1]} == {}


def test_fp8_stays_near_with_scales_from_the_packaged_texts(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quant, progress = QuantArgs(algo=QuantAlgo.FP8), Reporter({Step.CALIBRATE: 1}, emit=lambda line: None)
    scheme = scheme_of(quant)
    assert scheme is not None
    calib = CalibArgs(batches=512, batch_size=1, max_seq_length=512, seed=1234)
    with progress.during(Step.CALIBRATE):
        found = calibrate(model, config_of(model), "float32", scheme, calib, model.parent, progress)
    monkeypatch.setattr(torch_decoder, "TorchOps", AllTokens)
    assert perplexity(model, quant, found.scales) / perplexity(model, None) < FP8_BOUND
