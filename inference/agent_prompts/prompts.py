"""What each agent is asked: the user message, the same for training and inference."""

import re

from ..roles import PlanRequest
from ..vocabulary_protocol import BankRequest
from .templates import RenderedPrompt, escape_tags, insert_image_tags, render

CRITIC, PLANNER_TEXT, PLANNER_INTERLEAVED = "critic", "planner-text", "planner-interleaved"
SCORER, EXPANDER = "scorer", "expander"
# How the training rows of continued plans list the steps so far.
_STEPS_SO_FAR = re.compile(r"^Steps so far:\n(?P<steps>.*)", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^\d+\. ", re.MULTILINE)


def critic_prompt(instruction: str, rewritten: str, name: str = CRITIC) -> RenderedPrompt:
    """The question to the critic about an image before and one after the step.

    Args:
        instruction: the plan's prompt of the step, its goal.
        rewritten: the prompt that made the image; empty when it was the plan's own.
    """
    return render(
        name, original_instruction=escape_tags(instruction), rewritten_prompt=escape_tags(rewritten)
    )


def planner_prompt(request: str, name: str = PLANNER_TEXT, steps_given: int = 0) -> RenderedPrompt:
    """The question to the planner. `request` keeps its image tags: see `insert_image_tags`."""
    return render(name, request=request, steps_given=steps_given)


def scorer_prompt(instruction: str, name: str = SCORER) -> RenderedPrompt:
    """The question to the scorer about two images; `instruction`: the step's goal."""
    return render(name, instruction=escape_tags(instruction))


def expander_prompt(request: BankRequest, name: str = EXPANDER) -> RenderedPrompt:
    """The question to the expander about a vocabulary bank."""
    return render(name, **vars(request))


def planner_turn(request: PlanRequest, text_name: str, interleaved_name: str) -> RenderedPrompt:
    """The question to the planner about a user's request, with one image tag an image.

    A request with images or earlier steps takes the template `interleaved_name`.
    """
    steps_given = _count_steps(request.text)
    name = interleaved_name if request.images or steps_given else text_name
    return planner_prompt(insert_image_tags(request.text, len(request.images)), name, steps_given)


def _count_steps(text: str) -> int:
    """Steps that a request lists as done already."""
    listed = _STEPS_SO_FAR.search(text)
    return len(_STEP.findall(listed["steps"])) if listed else 0
