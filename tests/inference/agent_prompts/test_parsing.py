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


def test_damaged_plan_json_is_repaired():
    for text in (
        '<answer>{"execution_plan": [{"step_number": 1, "prompt": "Draw a cat."}]}</answer>',
        "<answer>{'execution_plan': [{'step_number': '1', 'prompt': 'Draw a cat.',}]</answer>",
        '<think>hm</think><answer>```json\n{"execution_plan": [{"step_number": 1, '
        '"prompt": "Draw a cat."}]}\n```</answer>',
        "<think></think><answer>[{'step_number': 1, 'prompt': 'Draw a cat.'}]</answer>",
    ):
        plan = parse_plan(text)
        assert [(step.step_number, step.prompt) for step in plan.steps] == [(1, "Draw a cat.")]


def test_unusable_plan_is_an_error_with_its_reason():
    for text, reason in (
        ("I cannot.", "no <answer>"),
        ("", "no <answer>"),
        ("<think><answer>{}</answer></think>", "no <answer>"),
        ('<answer>{"execution_plan": [{"step_number": 1, "prompt": "Dr', "cut off"),
        ("<answer>nothing</answer>", "is not a plan"),
        ("<answer>['a hat']</answer>", "is not a plan"),
        ('<answer>{"execution_plan": []}</answer>', "is not a plan: execution_plan"),
        ('<answer>{"execution_plan": [{"prompt": "x"}]}</answer>', "step_number"),
        ('<answer>{"execution_plan": [{"step_number": 1, "prompt": [1]}]}</answer>', "prompt"),
        ("<answer>" + "[" * 100_000 + "</answer>", "is not a plan"),
    ):
        with pytest.raises(UnusableAnswerError, match=reason):
            parse_plan(text)


def test_unreadable_verdict_is_a_rejection_without_a_prompt():
    for text in (
        "always true",
        '<answer>{"previous_step_success": "maybe", "refine_prompt": "x"}</answer>',
        '<answer>{"previous_step_success": true}</answer>',
        "<answer>[]</answer>",
        "<answer></answer>",
    ):
        verdict = parse_verdict(text)
        assert (verdict.accepted, verdict.refined_prompt) == (False, "")


# Answers in the form of the authors' agents, with invented words.
RELEASED_PLAN = """<think>Two pictures.</think>
<answer>{'execution_plan': [{'step_number': 1, 'step_name': 'A kite', 'instruction': "The kite's frame",
'prompt': 'Draw a kite, "unfinished".', 'auxiliary_text': 'None'}, {'step_number': 2, 'step_name': 'Tail',
'instruction': 'Its tail', 'prompt': 'Add a tail.', 'auxiliary_text': None}]}</answer>"""  # noqa: E501


def test_plans_of_the_authors_agents_are_read():
    plan = parse_plan(RELEASED_PLAN)
    assert plan.reasoning == "Two pictures."
    assert plan.steps == (
        PlanStep(1, "A kite", "The kite's frame", 'Draw a kite, "unfinished".', None),
        PlanStep(2, "Tail", "Its tail", "Add a tail.", None),
    )


def test_plans_whose_next_step_slipped_into_a_text_are_unusable():
    text = RELEASED_PLAN.replace("'None'}", "\"None}, {'step_number': 2\"}")
    with pytest.raises(UnusableAnswerError, match="a text of this step contains the next one"):
        parse_plan(text)


def test_verdicts_of_the_authors_agents_are_read():
    for answer, verdict in (
        ("{'previous_step_success': True, 'refine_prompt': 'Draw it.'}", (True, "")),
        ("{'previous_step_success': 'True', 'refine_prompt': 'Draw it.'}", (True, "")),
        (
            "{'previous_step_success': 'false', 'refine_prompt': \"It's red.\"}",
            (False, "It's red."),
        ),
    ):
        read = parse_verdict(f"<think>Why.</think><answer>{answer}</answer>")
        assert (read.accepted, read.refined_prompt, read.reasoning) == (*verdict, "Why.")


def test_truncated_verdict_is_parsed():
    text = '<think>a</think>\n<answer>{"previous_step_success": false, "refine_prompt": "Draw'
    assert parse_verdict(text) == Verdict(False, "Draw", "a")
