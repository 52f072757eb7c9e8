"""Agreement of scorers, computed by hand."""

import math

import pytest

from assets.trajectories.assets import agreements
from schemas.trajectories import GRADES, MemberScoreRow

COLUMNS = ("attempts", "Pearson", "Spearman", "mean difference", "same best attempt")


def rows(trajectory="t", **overall):
    """Members' scores of the attempts of two steps: two of step 1, three of step 2."""
    attempts = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    ids = {"trajectory_id": trajectory, "prompt_id": "p", "shard": "s", "weight": 1.0}
    return [
        MemberScoreRow(
            **ids,
            step_number=step,
            iteration=iteration,
            member=member,
            scorer=f"{member}/1",
            **dict.fromkeys(GRADES, grade),
            refusal="no" if grade is None else None,
        )
        for member, grades in overall.items()
        for (step, iteration), grade in zip(attempts, grades, strict=True)
    ]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        # deviations (-2, -1, 0, 1, 2) and (-2, -3, 0, -1, 6): products 18, squares 10 and 50;
        # ranks 1..5 and 2, 1, 4, 3, 5: 1 - 6 * 4 / (5 * 24); step 2's third attempt is the best
        ([2, 1, 4, 3, 10], (5, 18 / math.sqrt(500), 0.8, 9 / 5, 0.5)),
        ([5, 5, 5, 5, 5], (5, math.nan, math.nan, 2, 0)),
        ([None, 1, None, None, None], (1, math.nan, math.nan, 1, math.nan)),
        ([None] * 5, (0, *[math.nan] * 4)),
    ],
)
def test_statistics_computed_by_hand(other, expected):
    (found,) = agreements(rows(a=[1, 2, 3, 4, 5], b=other))
    assert found["members"] == "a and b"
    assert [found[name] for name in COLUMNS] == pytest.approx(expected, nan_ok=True)


def test_the_first_of_equals_is_the_best_attempt():
    (found,) = agreements(rows(a=[7, 7, 1, 9, 9], b=[7, 7, 1, 2, 9]))
    assert found["same best attempt"] == 0.5


def test_refused_attempts_do_not_count_for_their_pairs():
    grades = {"a": [1, 2, 3, 4, 5], "b": [1, None, 3, 4, None], "c": [2, 3, 4, 5, 6]}
    pairs = [(pair["attempts"], pair["mean difference"]) for pair in agreements(rows(**grades))]
    assert pairs == [(3, 0), (5, 1), (3, 1)]


def test_steps_of_two_trajectories_are_compared_separately():
    one, other = rows(a=[1, 2, 1, 2, 3], b=[1, 2, 1, 2, 3]), {"a": [1, 2, 1, 2, 3]}
    (found,) = agreements([*one, *rows("u", **other, b=[2, 1, 3, 2, 1])])
    assert (found["attempts"], found["same best attempt"]) == (10, 0.5)
