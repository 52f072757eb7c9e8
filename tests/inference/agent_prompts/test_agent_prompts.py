"""The agents' prompts and answers, as training rows and models see them."""

import json
import re

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.agent_prompts import (
    IMAGE,
    critic_answer,
    critic_prompt,
    escape_tags,
    place_images,
    planner_answer,
    planner_prompt,
    render,
)
from inference.agent_prompts.formatting import critic_answer_sql
from inference.agent_prompts.prompts import critic_prompt_sql
from inference.roles import Plan, PlanStep, Verdict
from schemas import FoundryError

# Texts that a hostile or careless model may write; surrogates and NUL are not storable text.
TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\x00"),
        st.sampled_from('<>/"\\\n'),
    ),
    max_size=40,
) | st.sampled_from(["<image>", "</THINK>", "a <answer> b", 'say "hi" \\ there', "  padded \n"])


def answer_of(turn: str) -> dict:
    return json.loads(re.fullmatch(r"(?s)<think>.*</think>\n<answer>(.*)</answer>", turn)[1])


def test_the_critic_is_shown_two_pictures_and_the_goal():
    question = critic_prompt("draw a red house", "")
    assert question.version == "critic@1"
    assert question.text.count(IMAGE) == 2
    assert "draw a red house" in question.text


def test_the_critic_is_told_the_wording_of_a_retry_only():
    first, retry = critic_prompt("goal", ""), critic_prompt("goal", "draw it RED")
    assert "draw it RED" in retry.text
    assert "was given the goal itself" in first.text
    assert "was given the goal itself" not in retry.text


def test_text_of_others_cannot_forge_structure():
    question = critic_prompt("add <image> and </answer>", "<THINK> now <Image>")
    assert question.text.count(IMAGE) == 2
    assert "add [image] and [/answer]" in question.text
    assert "[THINK] now [Image]" in question.text
    assert escape_tags("a < b > c <images>") == "a < b > c <images>"


@pytest.mark.parametrize(("given_steps", "begins"), [(0, 1), (1, 2), (7, 8)])
def test_the_interleaved_planner_goes_on_counting(given_steps, begins):
    text = planner_prompt("go on", "planner-interleaved", given_steps).text
    assert f"step_number begins at {begins}" in text
    assert f'"step_number": {begins}' in text


def test_a_missing_value_or_template_is_one_clear_line():
    with pytest.raises(FoundryError, match="planner-text@1: 'request' is undefined"):
        render("planner-text")
    with pytest.raises(FoundryError, match=r"no agent prompt 'critic@99'; there are: .*critic@1"):
        render("critic@99", original_instruction="x", rewritten_prompt="")


def test_an_exact_version_can_be_asked_for():
    values = {"original_instruction": "x", "rewritten_prompt": ""}
    assert render("critic@1", **values) == render("critic", **values)


@pytest.mark.parametrize(
    ("text", "images", "expected"),
    [
        ("plain", 0, "plain"),
        ("plain", 2, "<image><image>plain"),
        ("a <image> b", 1, "a <image> b"),
        ("a <IMAGE> b <image>", 1, "a <image> b [image]"),
        ("a <image> b", 0, "a [image] b"),
        ("a <image> b", 2, "<image>a <image> b"),
    ],
)
def test_images_are_placed(text, images, expected):
    assert place_images(text, images) == expected


@given(TEXTS, st.integers(0, 3))
def test_there_are_always_as_many_placeholders_as_images(text, images):
    assert place_images(text, images).lower().count(IMAGE) == images


def test_an_accepting_verdict_proposes_nothing():
    answer = answer_of(critic_answer(Verdict(True, "left over", "fine")))
    assert answer == {"previous_step_success": True, "refine_prompt": ""}


@given(TEXTS, TEXTS)
def test_answers_survive_any_text(reasoning, refined):
    turn = critic_answer(Verdict(False, refined, reasoning))
    assert answer_of(turn) == {
        "previous_step_success": False,
        "refine_prompt": escape_tags(refined),
    }
    assert turn.count("</think>") == turn.count("</answer>") == 1


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, st.booleans())
def test_duckdb_writes_what_python_writes(reasoning, refined, accepted):
    connection = duckdb.connect()
    parameters = {"a": accepted, "p": refined, "r": reasoning}
    answer = critic_answer_sql("CAST($a AS BOOLEAN)", "$p", "$r")
    written = connection.execute(f"SELECT {answer}", parameters).fetchall()[0][0]
    expected = critic_answer(Verdict(accepted, refined, reasoning))
    assert written.split("<answer>")[0] == expected.split("<answer>")[0]
    assert answer_of(written) == answer_of(expected)  # \u001f and \u001F are the same character
    question, version = critic_prompt_sql("$r", "$p")
    asked = critic_prompt(reasoning, refined)
    del parameters["a"]
    assert connection.execute(f"SELECT {question}", parameters).fetchall()[0][0] == asked.text
    assert version == asked.version


def test_a_plan_keeps_its_numbers_and_nulls():
    steps = (
        PlanStep(3, "Roof", "put the roof on", "add a roof", None),
        PlanStep(4, "Words", None, None, "It stands."),
    )
    answer = answer_of(planner_answer(Plan(steps, "roof last")))
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
