"""Answers of EditScore become grades: JSON is repaired, ratings are not guessed."""

import pytest

from inference.backends.editscore.scorer import mean_ratings
from inference.backends.providers.structured import CompletionResult
from inference.roles import UnusableAnswerError


def completion(text, is_complete=True):
    return CompletionResult(text, is_complete)


def grades(*texts, score_range=25):
    return tuple(mean_ratings("quality", [completion(text) for text in texts], score_range))


def test_ratings_become_grades_out_of_ten():
    assert grades('{"reasoning": "good", "score": [25, 5]}') == (10, 2)
    assert grades('{"reasoning": "good", "score": [7.5, 10]}', score_range=10) == (7.5, 10)


def test_grades_are_means():
    assert grades('{"score": [25, 5]}', '{"score": [15, 10]}') == (8, 3)


@pytest.mark.parametrize(
    "text",
    [
        'Here it is:\n```json\n{"reasoning": "good", "score": [20, 10]}\n```',
        "{'reasoning': 'it is good', 'score': [20, 10],}",
        '{"reasoning": "a "red" cat", "score": [20, 10], "other": 1}',
    ],
)
def test_malformed_json_is_repaired(text):
    assert grades(text) == (8, 4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a good picture, 20 and 10",
        '{"reasoning": "good", "score": [20]}',
        '{"reasoning": "good", "score": 20}',
        '{"reasoning": "good", "score": [20, 10, 5]}',
        '{"reasoning": "good", "score": [26, 10]}',
        '{"reasoning": "good", "score": [-1, 10]}',
        '{"reasoning": "good", "score": [NaN, 10]}',
        '{"reasoning": "good"}',
    ],
)
def test_answers_without_two_ratings_are_ignored(text):
    assert grades(text, '{"score": [20, 10]}') == (8, 4)
    with pytest.raises(
        UnusableAnswerError, match="none of 1 answers about quality can be read; the first: "
    ):
        grades(text)


def test_truncated_answers_are_ignored():
    with pytest.raises(UnusableAnswerError, match="cut off"):
        mean_ratings("quality", [completion('{"score": [20, 1', is_complete=False)], 25)
