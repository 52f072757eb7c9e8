"""How far scorers agree: by hand."""

import math

import pytest

from assets.trajectories.agreement import agreements
from schemas.trajectories import GRADES, MemberScoreRow


def row(member, step, iteration, overall, trajectory="t"):
    return MemberScoreRow(
        trajectory_id=trajectory,
        prompt_id="p",
        shard="s",
        step_number=step,
        iteration=iteration,
        member=member,
        scorer=f"{member}/1",
        weight=1.0,
        **dict.fromkeys(GRADES, overall),
        refusal="no" if overall is None else None,
    )


def rows(**overall):
    """Members' scores of the attempts of two steps: two of step 1, three of step 2."""
    places = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    return [
        row(member, step, iteration, grade)
        for member, grades in overall.items()
        for (step, iteration), grade in zip(places, grades, strict=True)
    ]


def test_by_hand():
    (found,) = agreements(rows(a=[1, 2, 3, 4, 5], b=[2, 1, 4, 3, 10]))
    assert found.members == ("a", "b")
    assert found.attempts == 5
    # deviations (-2, -1, 0, 1, 2) and (-2, -3, 0, -1, 6): products 18, squares 10 and 50
    assert found.pearson == pytest.approx(18 / math.sqrt(500))
    # ranks 1..5 and 2, 1, 4, 3, 5: 1 - 6 * 4 / (5 * 24)
    assert found.spearman == pytest.approx(0.8)
    assert found.mean_difference == pytest.approx((1 + 1 + 1 + 1 + 5) / 5)
    assert found.same_best == 0.5  # step 2's third attempt, not step 1's


def test_those_that_agree_on_the_order():
    (found,) = agreements(rows(a=[1, 2, 3, 4, 5], b=[3, 4, 5, 6, 10]))
    assert found.spearman == pytest.approx(1.0)
    assert found.same_best == 1.0


def test_of_equal_ones_the_first_is_best():
    (found,) = agreements(rows(a=[7, 7, 1, 9, 9], b=[7, 7, 1, 2, 9]))
    assert found.same_best == 0.5


def test_what_one_refused_is_left_out_for_its_pairs():
    found = {
        pair.members: pair
        for pair in agreements(rows(a=[1, 2, 3, 4, 5], b=[1, None, 3, 4, None], c=[2, 3, 4, 5, 6]))
    }
    assert found["a", "b"].attempts == found["b", "c"].attempts == 3
    assert found["a", "c"].attempts == 5
    assert found["a", "b"].mean_difference == 0
    assert found["b", "c"].mean_difference == 1


def test_no_correlation_with_one_that_gives_all_the_same():
    (found,) = agreements(rows(a=[1, 2, 3, 4, 5], b=[5, 5, 5, 5, 5]))
    assert found.pearson is None and found.spearman is None
    assert found.mean_difference == 2
    assert found.shown()["Pearson"] == "-"


def test_nothing_in_common():
    (found,) = agreements(rows(a=[1, None, 2, None, None], b=[None, 1, None, 2, 3]))
    assert (found.attempts, found.pearson, found.mean_difference, found.same_best) == (
        *(0, None),
        *(None, None),
    )


def test_steps_of_other_stories_are_other_steps():
    one = [row(m, 1, i, i, "t1") for m in "ab" for i in (0, 1)]
    other = [row("a", 1, i, i, "t2") for i in (0, 1)] + [row("b", 1, i, -i, "t2") for i in (0, 1)]
    (found,) = agreements([*one, *other])
    assert (found.attempts, found.same_best) == (4, 0.5)
