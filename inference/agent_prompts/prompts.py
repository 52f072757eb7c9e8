"""What each agent is asked: the user's turn, made in one way for training and for inference."""

import re

from ..roles import PlanRequest
from ..vocabulary_protocol import BankBrief
from .templates import RenderedPrompt, escape_tags, escape_tags_sql, place_images, render, segments

CRITIC, PLANNER_TEXT, PLANNER_INTERLEAVED = "critic", "planner-text", "planner-interleaved"
SCORER, EXPANDER = "scorer", "expander"
# How training rows of plans to be continued list what was done before.
_STEPS_SO_FAR = re.compile(r"^Steps so far:\n(?P<steps>.*)", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^\d+\. ", re.MULTILINE)


def critic_prompt(instruction: str, rewritten: str, name: str = CRITIC) -> RenderedPrompt:
    """The critic's turn about a picture before and one after.

    Args:
        instruction: the plan's prompt of the step, its goal.
        rewritten: the prompt that made the picture; empty when it was the plan's own.
    """
    return render(
        name, original_instruction=escape_tags(instruction), rewritten_prompt=escape_tags(rewritten)
    )


def planner_prompt(request: str, name: str = PLANNER_TEXT, steps_given: int = 0) -> RenderedPrompt:
    """The planner's turn. `request` keeps its image placeholders: see `place_images`."""
    return render(name, request=request, steps_given=steps_given)


def scorer_prompt(instruction: str, name: str = SCORER) -> RenderedPrompt:
    """The scorer's turn about a picture before and one after; `instruction`: the step's goal."""
    return render(name, instruction=escape_tags(instruction))


def expander_prompt(brief: BankBrief, name: str = EXPANDER) -> RenderedPrompt:
    """The expander's turn about a vocabulary bank."""
    return render(name, **vars(brief))


def planner_turn(request: PlanRequest, text_name: str, interleaved_name: str) -> RenderedPrompt:
    """The planner's turn about a request as it comes: with pictures or earlier steps, or without.

    The text has one placeholder a picture.
    """
    given = _steps_given(request.text)
    name = interleaved_name if request.images or given else text_name
    return planner_prompt(place_images(request.text, len(request.images)), name, given)


def critic_prompt_sql(instruction: str, rewritten: str, name: str = CRITIC) -> tuple[str, str]:
    """`critic_prompt` as a DuckDB expression over two expressions, and its version."""
    values = {
        "original_instruction": escape_tags_sql(instruction),
        "rewritten_prompt": escape_tags_sql(rewritten),
    }
    first = segments(name, "original_instruction", rewritten_prompt="")
    later = segments(name, "original_instruction", "rewritten_prompt")
    sql = (
        f"CASE WHEN {rewritten} = '' THEN {_concatenation(first.parts, values)} "
        f"ELSE {_concatenation(later.parts, values)} END"
    )
    return sql, first.version


def _steps_given(text: str) -> int:
    """Steps that a request lists as done already."""
    listed = _STEPS_SO_FAR.search(text)
    return len(_STEP.findall(listed["steps"])) if listed else 0


def _concatenation(parts: tuple[str, ...], values: dict[str, str]) -> str:
    quoted = ["'" + part.replace("'", "''") + "'" for part in parts]
    slots = [values[name] for name in parts[1::2]]
    quoted[1::2] = slots
    return " || ".join(quoted)
