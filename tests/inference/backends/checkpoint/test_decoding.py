"""Decoding a batch gives what transformers' own greedy search gives, row by row."""

import pytest

from inference.backends.checkpoint.decoding import decode
from inference.backends.checkpoint.model import load_checkpoint_model
from tests.inference.backends.checkpoint.tiny_agents import critic_asked, planner_asked
from tests.inference.scripted_world import picture

NEW = 24


@pytest.fixture(scope="module")
def loaded(shipped):
    return load_checkpoint_model(shipped)._loaded


@pytest.fixture(scope="module")
def questions():
    goals = ["Add a red cat.", "Put a blue ball at the top left. " * 6, "Paint a snowy meadow."]
    pictures = [(picture(goal, 1), picture(goal, 2)) for goal in goals]
    asked = [critic_asked(goal, *pair) for goal, pair in zip(goals, pictures, strict=True)]
    return [*asked, planner_asked("a story of a fox"), planner_asked("b")]


def prompts_of(loaded, questions, limits):
    encoded = [loaded.encoder.encode(question) for question in questions]
    batch = loaded.encoder.pad(encoded, "cpu")
    return type(batch)(batch.inputs, limits)


def alone(loaded, question):
    """Greedy search of transformers, for one question and without padding."""
    import torch
    from transformers import GenerationConfig

    inputs = prompts_of(loaded, [question], [NEW]).inputs
    greedy = GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    loaded.model.model.rope_deltas = None
    with torch.inference_mode():
        whole = loaded.model.generate(**inputs, generation_config=greedy)
    tokens = whole[0, inputs["input_ids"].shape[1] :].tolist()
    ends = [place for place, token in enumerate(tokens) if token in loaded.stops]
    return tokens[: ends[0]] if ends else tokens


def never():
    return False


@pytest.fixture(scope="module")
def expected(loaded, questions):
    return [alone(loaded, question) for question in questions]


def test_every_row_of_a_batch_is_what_it_would_be_alone(loaded, questions, expected):
    batch = prompts_of(loaded, questions, [NEW] * len(questions))
    assert decode(loaded.model, batch, loaded.stops, never) == expected


def test_requests_without_pictures_are_what_they_would_be_alone(loaded):
    asked = [planner_asked("a story " * times) for times in (1, 9, 4)]
    batch = prompts_of(loaded, asked, [NEW] * len(asked))
    assert "pixel_values" not in batch.inputs
    expected = [alone(loaded, question) for question in asked]
    assert decode(loaded.model, batch, loaded.stops, never) == expected


def test_rows_end_at_their_own_limit_and_leave_the_others_alone(loaded, questions, expected):
    limits = [1, NEW, 3, 7, NEW]
    written = decode(loaded.model, prompts_of(loaded, questions, limits), loaded.stops, never)
    assert written == [row[:limit] for row, limit in zip(expected, limits, strict=True)]


def test_rows_end_before_a_stop_token(loaded, questions, expected):
    stop = expected[0][-1]
    ended = [row[: row.index(stop)] if stop in row else row for row in expected]
    batch = prompts_of(loaded, questions, [NEW] * len(questions))
    assert decode(loaded.model, batch, [stop, *loaded.stops], never) == ended


def test_memory_grows_beyond_what_was_made_at_once(loaded, questions, monkeypatch):
    module = "inference.backends.checkpoint.decoding._GROWTH"
    batch = prompts_of(loaded, questions, [NEW] * len(questions))
    roomy = decode(loaded.model, batch, loaded.stops, never)
    monkeypatch.setattr(module, 2)
    assert decode(loaded.model, batch, loaded.stops, never) == roomy


def test_given_up_answers_end_where_they_are(loaded, questions, expected):
    batch = prompts_of(loaded, questions, [NEW] * len(questions))
    asked = iter([False, False, True])
    assert decode(loaded.model, batch, loaded.stops, lambda: next(asked)) == [
        row[:3] for row in expected
    ]
