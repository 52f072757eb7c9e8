"""Agreement of scorers, computed by hand."""

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
    attempts = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    return [
        row(member, step, iteration, grade)
        for member, grades in overall.items()
        for (step, iteration), grade in zip(attempts, grades, strict=True)
    ]


def test_statistics_computed_by_hand():
    (agreement,) = agreements(rows(a=[1, 2, 3, 4, 5], b=[2, 1, 4, 3, 10]))
    assert agreement.members == ("a", "b")
    assert agreement.attempts == 5
    # deviations (-2, -1, 0, 1, 2) and (-2, -3, 0, -1, 6): products 18, squares 10 and 50
    assert agreement.pearson == pytest.approx(18 / math.sqrt(500))
    # ranks 1..5 and 2, 1, 4, 3, 5: 1 - 6 * 4 / (5 * 24)
    assert agreement.spearman == pytest.approx(0.8)
    assert agreement.mean_difference == pytest.approx((1 + 1 + 1 + 1 + 5) / 5)
    assert agreement.same_best == 0.5  # step 2's third attempt, not step 1's


def test_agreement_on_the_order_and_on_the_first_of_equals():
    (agreement,) = agreements(rows(a=[1, 2, 3, 4, 5], b=[3, 4, 5, 6, 10]))
    assert agreement.spearman == pytest.approx(1.0) and agreement.same_best == 1.0
    (agreement,) = agreements(rows(a=[7, 7, 1, 9, 9], b=[7, 7, 1, 2, 9]))
    assert agreement.same_best == 0.5


def test_refused_attempts_do_not_count_for_their_pairs():
    grades = {"a": [1, 2, 3, 4, 5], "b": [1, None, 3, 4, None], "c": [2, 3, 4, 5, 6]}
    by_pair = {pair.members: pair for pair in agreements(rows(**grades))}
    assert [pair.attempts for pair in by_pair.values()] == [3, 5, 3]
    assert by_pair["a", "b"].mean_difference == 0
    assert by_pair["b", "c"].mean_difference == 1
    (nothing,) = agreements(rows(a=[1, None, 2, None, None], b=[None, 1, None, 2, 3]))
    assert nothing.attempts == 0
    assert (nothing.pearson, nothing.mean_difference, nothing.same_best) == (None,) * 3


def test_no_correlation_with_a_constant_scorer():
    (agreement,) = agreements(rows(a=[1, 2, 3, 4, 5], b=[5, 5, 5, 5, 5]))
    assert agreement.pearson is None and agreement.spearman is None
    assert agreement.mean_difference == 2
    assert agreement.table_row()["Pearson"] == "-"


def test_steps_of_two_trajectories_are_compared_separately():
    one = [row(m, 1, i, i, "t1") for m in "ab" for i in (0, 1)]
    other = [row("a", 1, i, i, "t2") for i in (0, 1)] + [row("b", 1, i, -i, "t2") for i in (0, 1)]
    (agreement,) = agreements([*one, *other])
    assert (agreement.attempts, agreement.same_best) == (4, 0.5)
