"""Each row's token follows its own temperature, top_p and luck, whatever its neighbours are."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch

from trtllm_engine.serve.sampling import Draw, sample

LOGITS = torch.tensor([[math.log(p) for p in (0.1, 0.5, 0.15, 0.25)]])


def frequencies(draws: int, **settings: float) -> list[float]:
    luck = random.Random(0)
    rows = [Draw(uniform=luck.random(), **settings) for _ in range(draws)]
    counts = Counter(sample(LOGITS.expand(draws, -1), rows))
    return [counts[token] / draws for token in range(4)]


def test_temperature_zero_takes_the_largest_logit_and_the_first_of_equals() -> None:
    assert sample(torch.tensor([[1.0, 3.0, 2.0], [5.0, 1.0, 5.0]]), [Draw(), Draw()]) == [1, 0]


def test_temperature_one_follows_the_model_s_probabilities() -> None:
    assert frequencies(20_000, temperature=1.0) == pytest.approx([0.1, 0.5, 0.15, 0.25], abs=0.015)


def test_a_lower_temperature_sharpens() -> None:
    squares = [p * p for p in (0.1, 0.5, 0.15, 0.25)]
    expected = [p / sum(squares) for p in squares]
    assert frequencies(20_000, temperature=0.5) == pytest.approx(expected, abs=0.015)


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    assert frequencies(20_000, temperature=1.0, top_p=0.7) == pytest.approx([0, 2 / 3, 0, 1 / 3], abs=0.015)


def test_a_tiny_top_p_is_greedy() -> None:
    assert frequencies(100, temperature=2.0, top_p=1e-6) == [0, 1, 0, 0]


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2**-53])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_the_ends_of_the_luck_choose_possible_tokens(uniform: float, top_p: float) -> None:
    logits = torch.tensor([[-math.inf, 0.0, 0.0, -math.inf]])
    assert sample(logits, [Draw(temperature=1.0, top_p=top_p, uniform=uniform)])[0] in (1, 2)


def test_the_smallest_temperature_is_greedy_and_no_error() -> None:
    assert sample(LOGITS, [Draw(temperature=5e-324, uniform=0.9)]) == [1]


def test_a_row_s_token_does_not_depend_on_its_neighbours() -> None:
    logits = torch.randn(12, 50, generator=torch.Generator().manual_seed(1))
    luck = random.Random(2)
    draws = [
        Draw(temperature=t, top_p=p, uniform=luck.random()) for t in (0.0, 0.7, 1.5) for p in (0.3, 0.9, 0.99, 1.0)
    ]
    alone = [sample(logits[i : i + 1], [draws[i]])[0] for i in range(12)]
    assert sample(logits, draws) == alone
