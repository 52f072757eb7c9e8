"""Agents' prompts and answers, as in training rows and model calls."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.agent_prompts.formatting import critic_answer, planner_answer
from inference.agent_prompts.templates import (
    IMAGE,
    critic_prompt,
    escape_tags,
    insert_image_tags,
    planner_prompt,
    planner_turn,
    render,
)
from inference.roles import Plan, PlanRequest, PlanStep, Verdict
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
    steps = (
        PlanStep(3, "Roof", "put the roof on", "add a roof", None),
        PlanStep(4, "Words", None, None, "It stands."),
    )
    answer = parse_answer(planner_answer(Plan(steps, "roof last")))
    assert answer["execution_plan"] == [
        {
            "step_number": 3,
            "step_name": "Roof",
            "instruction": "put the roof on",
            "prompt": "add a roof",
            "auxiliary_text": None,
        },
        {
            "step_number": 4,
            "step_name": "Words",
            "instruction": None,
            "prompt": None,
            "auxiliary_text": "It stands.",
        },
    ]
