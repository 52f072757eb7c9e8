"""Parsing plans and verdicts from agents' text."""

import pytest

from inference.agent_prompts.formatting import (
    critic_answer,
    parse_plan,
    parse_verdict,
    planner_answer,
)
from inference.roles import Plan, PlanStep, UnusableAnswerError, Verdict

PLAN = Plan(
    (
        PlanStep(2, "Cat", 'Say "hi".', "Draw a cat.", None),
        PlanStep(3, "Words", None, None, "The end."),
    ),
    "why",
)


def test_formatted_answers_are_parsed_back():
    assert parse_plan(planner_answer(PLAN)) == PLAN
    for verdict in (Verdict(True, "", "all right"), Verdict(False, 'Draw "hi".', "wrong")):
        assert parse_verdict(critic_answer(verdict)) == verdict


@pytest.mark.parametrize(
    "text",
    [
        '<answer>{"execution_plan": [{"step_number": 1, "prompt": "Draw a cat."}]}</answer>',
        "<answer>{'execution_plan': [{'step_number': '1', 'prompt': 'Draw a cat.',}]</answer>",
        '<think>hm</think><answer>```json\n{"execution_plan": [{"step_number": 1, '
        '"prompt": "Draw a cat."}]}\n```</answer>',
    ],
)
def test_damaged_plan_json_is_repaired(text):
    plan = parse_plan(text)
    assert [(step.step_number, step.prompt) for step in plan.steps] == [(1, "Draw a cat.")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I cannot.", "no <answer>"),
        ("", "no <answer>"),
        ("<think><answer>{}</answer></think>", "no <answer>"),
        ('<answer>{"execution_plan": [{"step_number": 1, "prompt": "Dr', "cut off"),
        ("<answer>nothing</answer>", "is not a plan"),
        ('<answer>{"execution_plan": []}</answer>', "is not a plan: execution_plan"),
        ('<answer>{"execution_plan": [{"prompt": "x"}]}</answer>', "step_number"),
        ('<answer>{"execution_plan": [{"step_number": 1, "prompt": [1]}]}</answer>', "prompt"),
        ("<answer>" + "[" * 100_000 + "</answer>", "is not a plan"),
    ],
)
def test_unusable_plan_is_an_error_with_its_reason(text, reason):
    with pytest.raises(UnusableAnswerError, match=reason):
        parse_plan(text)


@pytest.mark.parametrize(
    "text",
    [
        "always true",
        '<answer>{"previous_step_success": "maybe", "refine_prompt": "x"}</answer>',
        '<answer>{"previous_step_success": true}</answer>',
        "<answer>[]</answer>",
        "<answer></answer>",
    ],
)
def test_unreadable_verdict_is_a_rejection_without_a_prompt(text):
    verdict = parse_verdict(text)
    assert (verdict.accepted, verdict.refined_prompt) == (False, "")


def test_truncated_verdict_is_parsed():
    text = '<think>a</think>\n<answer>{"previous_step_success": false, "refine_prompt": "Draw'
    assert parse_verdict(text) == Verdict(False, "Draw", "a")


def test_prompt_of_an_accepting_verdict_is_dropped():
    text = '<answer>{"previous_step_success": true, "refine_prompt": "again"}</answer>'
    assert parse_verdict(text) == Verdict(True, "", "")
