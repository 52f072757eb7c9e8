"""Agents' prompts and answers, as in training rows and model calls, and how these are parsed."""

import json
import re
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.agent_prompts.formatting import (
    critic_answer,
    parse_plan,
    parse_verdict,
    planner_answer,
)
from inference.agent_prompts.templates import (
    IMAGE,
    critic_prompt,
    escape_tags,
    insert_image_tags,
    planner_prompt,
    planner_turn,
    render,
)
from inference.roles import Plan, PlanRequest, PlanStep, UnusableAnswerError, Verdict
from schemas import FoundryError
from tests.inference.scripted_world import tiny_image

# Texts a hostile or careless model may write; surrogates and NUL cannot be stored.
TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\x00"),
        st.sampled_from('<>/"\\\n'),
    ),
    max_size=40,
) | st.sampled_from(["<image>", "</THINK>", "a <answer> b", 'say "hi" \\ there', "  padded \n"])

PLAN = Plan(
    (
        PlanStep(2, "Cat", 'Say "hi".', "Draw a cat.", None),
        PlanStep(3, "Words", None, None, "The end."),
    ),
    "why",
)


def parse_answer(message: str) -> dict:
    return json.loads(re.fullmatch(r"(?s)<think>.*</think>\n<answer>(.*)</answer>", message)[1])


def test_critic_prompt_has_two_images_the_goal_and_a_retrys_rewritten_prompt():
    first, retry = critic_prompt("draw a red house", ""), critic_prompt("goal", "draw it RED")
    assert first.version == "critic@1"
    assert first.text.count(IMAGE) == 2
    assert "draw a red house" in first.text and "was given the goal itself" in first.text
    assert "draw it RED" in retry.text and "was given the goal itself" not in retry.text
    values = {"original_instruction": "goal", "rewritten_prompt": "draw it RED"}
    assert render("critic@1", **values) == retry


def test_reserved_tags_in_free_text_are_escaped():
    prompt = critic_prompt("add <image> and </answer>", "<THINK> now <Image>")
    assert prompt.text.count(IMAGE) == 2
    assert "add [image] and [/answer]" in prompt.text
    assert "[THINK] now [Image]" in prompt.text
    assert escape_tags("a < b > c <images>") == "a < b > c <images>"


def test_interleaved_planner_prompt_continues_step_numbers():
    text = planner_prompt("go on", "planner-interleaved", 7).text
    assert "step_number begins at 8" in text and '"step_number": 8' in text
    request = PlanRequest("<image> First. <image> Then.", (tiny_image("a"), tiny_image("b")))
    text = planner_turn(request, "planner-text", "planner-interleaved").text
    assert "Count the steps that the request already shows or tells" in text
    assert "given step" not in text


def test_missing_value_or_template_is_an_error():
    with pytest.raises(FoundryError, match="planner-text@1: 'request' is undefined"):
        render("planner-text")
    with pytest.raises(FoundryError, match=r"no agent prompt 'critic@99'; there are: .*critic@1"):
        render("critic@99", original_instruction="x", rewritten_prompt="")


def test_insert_image_tags():
    for text, images, expected in (
        ("plain", 0, "plain"),
        ("plain", 2, "<image><image>plain"),
        ("a <image> b", 1, "a <image> b"),
        ("a <IMAGE> b <image>", 1, "a <image> b [image]"),
        ("a <image> b", 0, "a [image] b"),
        ("a <image> b", 2, "<image>a <image> b"),
    ):
        assert insert_image_tags(text, images) == expected


@given(TEXTS, st.integers(0, 3))
def test_there_are_as_many_image_tags_as_images(text, images):
    assert insert_image_tags(text, images).lower().count(IMAGE) == images


def test_accepting_verdict_has_an_empty_rewritten_prompt():
    answer = parse_answer(critic_answer(Verdict(True, "left over", "fine")))
    assert answer == {"previous_step_success": True, "refine_prompt": ""}


@given(TEXTS, TEXTS)
def test_critic_answer_of_any_text_can_be_parsed(reasoning, refined):
    message = critic_answer(Verdict(False, refined, reasoning))
    assert parse_answer(message) == {
        "previous_step_success": False,
        "refine_prompt": escape_tags(refined),
    }
    assert message.count("</think>") == message.count("</answer>") == 1


def test_planner_answer_has_step_numbers_and_nulls():
    answer = parse_answer(planner_answer(PLAN))
    assert answer["execution_plan"] == [asdict(step) for step in PLAN.steps]
    assert answer["execution_plan"][1]["prompt"] is None
    assert list(answer["execution_plan"][0]) == [
        *("step_number", "step_name", "instruction", "prompt", "auxiliary_text")
    ]


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
