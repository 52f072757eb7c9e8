"""Every rule of both published rewards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from training.rewards.reward import (
    Grades,
    ParsedAnswer,
    RewardParts,
    RewardSettings,
    accuracy_reward,
    format_reward,
    needs_image,
    neutral_step_reward,
    step_reward,
    total_reward,
)

FORMS = st.sampled_from(["paper", "code"])
GRADES = st.builds(Grades, st.floats(0, 10), st.floats(0, 10))


def test_a_worked_example():
    parts = RewardParts(format=0.1, accuracy=-0.3, step=0.5)
    assert total_reward(parts, RewardSettings()) == pytest.approx(0.22)  # as the paper
    assert (format_reward(ParsedAnswer(True, "")), format_reward(None)) == (1, 0)


def test_accuracy():
    cases = [(True, True, 0, 1), (False, False, 0, 1), (True, False, -1, 0), (False, True, -1, 0)]
    for verdict, truth, paper, code in cases:
        assert accuracy_reward(verdict, truth, "paper") == paper
        assert accuracy_reward(verdict, truth, "code") == code


def test_the_paper_redraws_rejections_and_the_code_bad_images():
    for truth in [True, False]:
        for verdict in [True, False]:
            assert needs_image(verdict, truth, "paper") == (not verdict)
            assert needs_image(verdict, truth, "code") == (not truth)


def test_the_neutral_step_is_no_gain():
    same = Grades(6.0, 7.0)
    for form in ("paper", "code"):
        assert step_reward(same, same, form) == neutral_step_reward(form)


def test_the_papers_step_is_the_gain_in_overall_score():
    assert step_reward(Grades(4, 9), Grades(9, 4)) == 0
    assert step_reward(Grades(1, 4), Grades(9, 4)) == pytest.approx((6 - 2) / 10)
    assert step_reward(Grades(0, 10), Grades(10, 10)) == 1
    assert step_reward(Grades(10, 10), Grades(10, 0)) == -1


def test_the_codes_step_grades_semantics_and_quality_apart():
    semantics, quality = (8 - 2) / 10 / 2 + 0.5, (5 - 9) / 10 / 2 + 0.5
    gained = step_reward(Grades(2, 9), Grades(8, 5), "code")
    assert gained == pytest.approx(0.75 * semantics + 0.25 * quality)


def test_the_codes_reward_is_the_published_one():
    accuracy, semantics, quality = 1.0, 0.8, 0.3
    step = step_reward(Grades(2, 9), Grades(8, 5), "code")
    published = 0.5 + 0.5 * (0.2 * accuracy + 0.6 * semantics + 0.2 * quality)
    assert total_reward(
        RewardParts(1, accuracy, step), RewardSettings(form="code")
    ) == pytest.approx(published)
    accepted = RewardParts(1, accuracy_reward(True, True, "code"), neutral_step_reward("code"))
    assert total_reward(accepted, RewardSettings(form="code")) == pytest.approx(0.8)


def test_alpha_weighs_accuracy_against_step():
    for alpha in [0.0, 0.2, 0.7, 1.0]:
        reward = total_reward(RewardParts(1, -1, 1), RewardSettings(alpha=alpha))
        assert reward == pytest.approx(0.5 + 0.5 * (1 - 2 * alpha))


def test_an_ablated_part_gives_its_weight_to_the_other():
    for part, reward in [("step", 0.0), ("accuracy", 0.75)]:
        settings = RewardSettings(without=(part,))
        assert total_reward(RewardParts(1, -1, 0.5), settings) == pytest.approx(reward)
    with pytest.raises(ValidationError):
        RewardSettings(without=("step", "accuracy"))


def test_a_malformed_answer_has_its_format_part_only():
    for settings in [RewardSettings(), RewardSettings(form="code")]:
        assert total_reward(RewardParts(format_reward(None)), settings) == 0


@given(FORMS, st.booleans(), st.booleans(), GRADES, GRADES, st.floats(0, 1))
def test_rewards_stay_between_0_and_1_and_above_a_malformed_answers(
    form, verdict, truth, before, after, alpha
):
    step = step_reward(before, after, form)
    parts = RewardParts(1, accuracy_reward(verdict, truth, form), step)
    reward = total_reward(parts, RewardSettings(form=form, alpha=alpha))
    assert -1e-9 <= reward <= 1 + 1e-9


@given(FORMS, GRADES, GRADES, GRADES)
def test_a_better_image_never_has_a_lower_reward(form, before, one, other):
    worse = Grades(min(one.semantics, other.semantics), min(one.quality, other.quality))
    assert step_reward(before, one, form) >= step_reward(before, worse, form) - 1e-9
