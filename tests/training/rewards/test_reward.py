"""Answers of the policy, and every rule of both published rewards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from inference.agent_prompts.formatting import critic_answer
from inference.roles import Verdict
from training.rewards.reward import (
    Grades,
    ParsedAnswer,
    RewardParts,
    RewardSettings,
    accuracy_reward,
    format_reward,
    neutral_step_reward,
    parse_answer,
    step_reward,
    total_reward,
)

FORMS = st.sampled_from(["paper", "code"])
GRADES = st.builds(Grades, st.floats(0, 10), st.floats(0, 10))
BODY = '{"previous_step_success": false, "refine_prompt": "a red cat"}'
PARSED = ParsedAnswer(False, "a red cat")


def test_a_worked_example_and_a_step_without_a_gain():
    parts = RewardParts(format=0.1, accuracy=-0.3, step=0.5)
    assert total_reward(parts, RewardSettings()) == pytest.approx(0.22)  # as the paper
    assert (format_reward(ParsedAnswer(True, "")), format_reward(None)) == (1, 0)
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


def test_sloppy_answers_are_parsed():
    cases = [
        f"<think>the cat is blue</think>\n<answer>{BODY}</answer>",
        f"<answer>{BODY}</answer>",
        f"the cat is blue</think><answer>{BODY}</answer>",
        f"<think>I <answer>maybe</answer> so</think><answer>{BODY}</answer>",
        f"< think >hm< / think > < answer > {BODY} < / answer >",
        f"<answer>```json\n{BODY}\n```</answer>",
        f"<answer>{BODY}</answer> and some more",
        "<answer>{'previous_step_success': False, 'refine_prompt': 'a red cat',}</answer>",
        '<answer>{"refine_prompt": "a red cat", "previous_step_success": false</answer>',
        f"<answer>{BODY[:-1]}, " + '"why": "blue"}</answer>',
        '<answer>{"previous_step_success": false, "refine_prompt": " a red cat "}</answer>',
    ]
    for text in cases:
        assert parse_answer(text) == PARSED


def test_malformed_answers_are_none():
    cases = [
        "",
        BODY,
        "<answer></answer>",
        f"<answer>{BODY}",
        f"<think>hm</think>\n<answer>{BODY}</answe",
        "<answer>false</answer>",
        "<answer>[]</answer>",
        f"<answer>[{BODY}]</answer>",
        '<answer>{"previous_step_success": "false", "refine_prompt": "x"}</answer>',
        '<answer>{"previous_step_success": 0, "refine_prompt": "x"}</answer>',
        '<answer>{"previous_step_success": false, "refine_prompt": null}</answer>',
        '<answer>{"previous_step_success": false}</answer>',
        '<answer>{"refine_prompt": "x"}</answer>',
        f"<answer>{BODY}</answer></think>",
        "<answer>" + "[" * 5000 + "</answer>",
        "<answer>" + '{"a":' * 5000 + "</answer>",
        "<answer>" + "9" * 5000 + "</answer>",
    ]
    for text in cases:
        assert parse_answer(text) is None


def test_white_space_around_brackets_and_slashes_is_removed_from_the_prompt_too():
    text = '<answer>{"previous_step_success": false, "refine_prompt": "a cat / dog"}</answer>'
    assert parse_answer(text) == ParsedAnswer(False, "a cat/dog")


@given(st.booleans(), st.text("abc \n\"'{}[],.:äπ猫", max_size=40), st.text(max_size=40))
def test_answers_of_our_formatter_are_parsed(accepted, prompt, reasoning):
    text = critic_answer(Verdict(accepted, prompt, reasoning))
    assert parse_answer(text) == ParsedAnswer(accepted, "" if accepted else prompt.strip())


@given(st.text(), st.text("<>/answer{}[]\"':,truefals previous_step_success refine_prompt"))
def test_parsing_never_raises(noise, likely):
    for text in (noise, f"<answer>{noise}</answer>", f"<answer>{likely}</answer>"):
        answer = parse_answer(text)
        assert answer is None or isinstance(answer, ParsedAnswer)
