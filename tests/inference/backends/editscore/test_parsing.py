"""What EditScore wrote, as grades: JSON is repaired, marks are not guessed."""

import pytest

from inference.backends.checkpoint.model import Completion
from inference.backends.editscore.parsing import mean_ratings
from inference.roles import UnusableAnswerError


def answer(text, whole=True):
    return Completion(text, 1, 1, whole)


def marks(*texts, score_range=25):
    return tuple(mean_ratings("quality", [answer(text) for text in texts], score_range))


def test_marks_are_grades_out_of_ten():
    assert marks('{"reasoning": "good", "score": [25, 5]}') == (10, 2)
    assert marks('{"reasoning": "good", "score": [7.5, 10]}', score_range=10) == (7.5, 10)


def test_the_mean_counts():
    assert marks('{"score": [25, 5]}', '{"score": [15, 10]}') == (8, 3)


@pytest.mark.parametrize(
    "text",
    [
        'Here it is:\n```json\n{"reasoning": "good", "score": [20, 10]}\n```',
        "{'reasoning': 'it is good', 'score': [20, 10],}",
        '{"reasoning": "a "red" cat", "score": [20, 10], "other": 1}',
    ],
)
def test_untidy_json_is_read(text):
    assert marks(text) == (8, 4)


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
def test_what_has_no_two_marks_is_left_out(text):
    assert marks(text, '{"score": [20, 10]}') == (8, 4)
    with pytest.raises(
        UnusableAnswerError, match="none of 1 answers about quality can be read; the first: "
    ):
        marks(text)


def test_what_was_cut_off_is_left_out():
    with pytest.raises(UnusableAnswerError, match="cut off"):
        mean_ratings("quality", [answer('{"score": [20, 1', whole=False)], 25)
