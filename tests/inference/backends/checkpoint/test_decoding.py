"""Batches have the tokens of transformers' own greedy search, or its distribution, by row."""

from collections import Counter

import pytest

from inference.backends.checkpoint.backend import CheckpointModel
from inference.backends.checkpoint.decoding import Sampling, SeededSampler, decode
from tests.inference.backends.checkpoint.tiny_agents import (
    critic_query,
    greedy_tokens,
    planner_query,
)
from tests.inference.scripted_world import tiny_image

NEW = 24


@pytest.fixture(scope="module")
def loaded(packaged_folder):
    return CheckpointModel(packaged_folder).loaded


@pytest.fixture(scope="module")
def queries():
    goals = ["Add a red cat.", "Put a blue ball at the top left. " * 6, "Paint a snowy meadow."]
    images = [(tiny_image(goal, 1), tiny_image(goal, 2)) for goal in goals]
    critics = [critic_query(goal, *pair) for goal, pair in zip(goals, images, strict=True)]
    return [*critics, planner_query("a story of a fox"), planner_query("b")]


def inputs_of(loaded, queries):
    encoded = [loaded.encoder.encode(query) for query in queries]
    return loaded.encoder.pad(encoded, "cpu")


def decode_all(loaded, queries, limits=None, **options):
    limits = limits or [NEW] * len(queries)
    return decode(loaded.model, inputs_of(loaded, queries), limits, loaded.stops, **options)


def generate(loaded, query):
    tokens = greedy_tokens(loaded, query, NEW)
    ends = [place for place, token in enumerate(tokens) if token in loaded.stops]
    return tokens[: ends[0] + 1] if ends else tokens


@pytest.fixture(scope="module")
def expected(loaded, queries):
    return [generate(loaded, query) for query in queries]


def test_rows_of_a_batch_without_images_are_as_without_it(loaded):
    queries = [planner_query("a story " * times) for times in (1, 9, 4)]
    assert "pixel_values" not in inputs_of(loaded, queries)
    assert decode_all(loaded, queries) == [generate(loaded, query) for query in queries]


def test_rows_are_as_without_a_batch_and_end_at_their_own_limit(loaded, queries, expected):
    limits = [1, NEW, 3, 7, NEW]
    ended = []
    answers = decode_all(loaded, queries, limits, on_end=lambda row, tokens: ended.append(row))
    assert ended[:3] == [0, 2, 3]
    assert answers == [row[:limit] for row, limit in zip(expected, limits, strict=True)]


def test_rows_end_with_a_stop_token(loaded, queries, expected):
    stop = expected[0][-1]
    ended = [row[: row.index(stop) + 1] if stop in row else row for row in expected]
    stops = [stop, *loaded.stops]
    limits = [NEW] * len(queries)
    assert decode(loaded.model, inputs_of(loaded, queries), limits, stops) == ended


def test_cancelled_answers_end_where_they_are(loaded, queries, expected):
    checks = iter([False, False, True])
    answers = decode_all(loaded, queries, is_cancelled=lambda: next(checks))
    assert answers == [row[:3] for row in expected]


PROBABILITIES = [0.4, 0.25, 0.15, 0.1, 0.06, 0.04]
ROWS = 4000


def sample(sampling, rows=ROWS):
    """How often each token is sampled from `PROBABILITIES`."""
    import torch

    logits = torch.tensor([PROBABILITIES]).log().expand(rows, -1)
    tokens = SeededSampler(sampling, range(rows), 1, logits.device).choose(logits)
    return Counter(tokens.tolist())


def expected_shares(sampling):
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


def test_tokens_have_the_distribution_of_transformers():
    for sampling in (
        Sampling(1.0, 1.0, 6),
        Sampling(1.0, 1.0, 3),
        Sampling(1.0, 0.7, 6),
        Sampling(0.5, 0.9, 20),
        Sampling(2.0, 0.9, 4),
        Sampling(1.0, 0.1, 6),
    ):
        counts = sample(sampling)
        for token, probability in enumerate(expected_shares(sampling)):
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
