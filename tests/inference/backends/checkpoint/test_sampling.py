"""Sampling of tokens: the distribution of transformers, seeds per row."""

from collections import Counter

import pytest

from inference.backends.checkpoint.decoding import Sampling, SeededSampler

PROBABILITIES = [0.4, 0.25, 0.15, 0.1, 0.06, 0.04]
ROWS = 4000


def sample(sampling, rows=ROWS):
    """How often each token is sampled from `PROBABILITIES`."""
    import torch

    logits = torch.tensor([PROBABILITIES]).log().expand(rows, -1)
    tokens = SeededSampler(sampling, range(rows), 1, logits.device).choose(logits)
    return Counter(tokens.tolist())


def expected(sampling):
    """The probabilities that transformers samples from."""
    import torch
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    scores = torch.tensor([PROBABILITIES]).log()
    for warper in (
        TemperatureLogitsWarper(sampling.temperature),
        TopKLogitsWarper(sampling.top_k),
        TopPLogitsWarper(sampling.top_p),
    ):
        scores = warper(None, scores)
    return scores.softmax(-1)[0].tolist()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1.0, 1.0, 6),
        Sampling(1.0, 1.0, 3),
        Sampling(1.0, 0.7, 6),
        Sampling(0.5, 0.9, 20),
        Sampling(2.0, 0.9, 4),
        Sampling(1.0, 0.1, 6),
    ],
)
def test_tokens_have_the_distribution_of_transformers(sampling):
    counts = sample(sampling)
    for token, probability in enumerate(expected(sampling)):
        assert counts[token] / ROWS == pytest.approx(probability, abs=0.03)
        assert (counts[token] == 0) == (probability == 0)


def test_random_numbers_of_a_row_follow_from_its_seed():
    import torch

    logits = torch.tensor([PROBABILITIES]).log()
    sampling = Sampling(1.0, 1.0, 6)
    both = SeededSampler(sampling, [1, 2], 8, logits.device)
    alone = SeededSampler(sampling, [2], 8, logits.device)
    together = [both.choose(logits.expand(2, -1))[1].item() for _ in range(8)]
    assert together == [alone.choose(logits)[0].item() for _ in range(8)]
    assert len(set(together)) > 1
