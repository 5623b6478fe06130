"""The next token: what may be drawn, and what is drawn, by hand-made distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from liebig.base import rng
from liebig.queries.sampling import BLOCK, draw, greedy, nucleus, sampling, top

SHARES = torch.tensor([[0.05, 0.4, 0.1, 0.3, 0.15]], dtype=torch.float64)


def kept(top_k: int | None, top_p: float, temperature: float = 1.0) -> dict[int, float]:
    found = nucleus(SHARES.log(), top_k, top_p, temperature)
    both = zip(found.tokens[0].tolist(), found.probabilities[0].tolist())
    return {token: share for token, share in both if share}


@pytest.mark.parametrize(
    ("top_k", "top_p", "tokens"),
    [
        (None, 1.0, [1, 3, 4, 2, 0]),
        (3, 1.0, [1, 3, 4]),
        (None, 0.7, [1, 3]),  # 0.4 + 0.3 reach 0.7
        (None, 0.71, [1, 3, 4]),
        (None, 0.01, [1]),
        (2, 0.5, [1]),  # of the two kept, 0.4 / 0.7 is enough
        (2, 0.6, [1, 3]),
    ],
)
def test_top_k_first_and_of_those_the_fewest_that_reach_top_p(top_k, top_p, tokens):
    assert list(kept(top_k, top_p)) == tokens


def test_what_is_kept_is_in_proportion_to_what_it_was():
    assert kept(3, 0.9) == pytest.approx({1: 0.4 / 0.85, 3: 0.3 / 0.85, 4: 0.15 / 0.85})
    squares = {1: 0.16, 3: 0.09}
    assert kept(2, 1.0, temperature=0.5) == pytest.approx({t: s / 0.25 for t, s in squares.items()})


def test_draws_are_as_frequent_as_they_should_be_and_none_falls_outside():
    n = 40_000
    uniform = torch.from_numpy(rng.uniform(rng.key(7), np.arange(n)))
    tokens = sampling(3, 0.9, 1.0)(SHARES.log().expand(n, -1), uniform)
    counts = torch.bincount(tokens, minlength=5) / n
    expected = torch.tensor([0.0, 0.4, 0.0, 0.3, 0.15]) / 0.85
    assert set(tokens.tolist()) == {1, 3, 4}
    assert torch.allclose(counts, expected, atol=0.01)


def test_a_uniform_number_chooses_the_stretch_it_falls_in():
    found = nucleus(SHARES.log().expand(4, -1), 2, 1.0)
    uniform = torch.tensor([0.0, 0.571, 0.572, 1 - 2**-53], dtype=torch.float64)  # the border is 4/7
    assert draw(found, uniform).tolist() == [1, 1, 3, 3]


def test_the_top_of_a_large_vocabulary_is_exact_in_two_steps():
    torch.manual_seed(0)
    logits = torch.randn(9, 40 * BLOCK + 17)
    values, tokens = top(logits, 7)
    expected = logits.topk(7, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(tokens, expected.indices)


def test_of_equal_scores_the_lower_number_comes_first():
    logits = torch.zeros(1, 6)
    logits[0, 4] = 1.0
    assert top(logits, 6)[1].tolist() == [[4, 0, 1, 2, 3, 5]]
    assert greedy(torch.zeros(2, 5), torch.zeros(2)).tolist() == [0, 0]
