"""Decoding a batch gives the tokens of transformers' own greedy search, row by row."""

import pytest

from inference.backends.checkpoint.decoding import decode
from inference.backends.checkpoint.model import CheckpointModel
from tests.inference.backends.checkpoint.tiny_agents import critic_query, planner_query
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
    """Greedy search of transformers, for one query and without padding."""
    import torch
    from transformers import GenerationConfig

    inputs = inputs_of(loaded, [query])
    greedy = GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    loaded.model.model.rope_deltas = None
    with torch.inference_mode():
        output = loaded.model.generate(**inputs, generation_config=greedy)
    tokens = output[0, inputs["input_ids"].shape[1] :].tolist()
    ends = [place for place, token in enumerate(tokens) if token in loaded.stops]
    return tokens[: ends[0] + 1] if ends else tokens


@pytest.fixture(scope="module")
def expected(loaded, queries):
    return [generate(loaded, query) for query in queries]


def test_rows_of_a_batch_are_as_without_it(loaded, queries, expected):
    assert decode_all(loaded, queries) == expected


def test_rows_of_a_batch_without_images_are_as_without_it(loaded):
    queries = [planner_query("a story " * times) for times in (1, 9, 4)]
    assert "pixel_values" not in inputs_of(loaded, queries)
    assert decode_all(loaded, queries) == [generate(loaded, query) for query in queries]


def test_rows_end_at_their_own_limit_without_changing_others(loaded, queries, expected):
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
