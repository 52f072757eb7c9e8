"""What the agents are asked and how they answer: versioned templates and writers of answers."""

from .answers import critic_answer, planner_answer
from .questions import (
    critic_question,
    expander_question,
    planner_question,
    planner_turn,
    scorer_question,
)
from .templates import IMAGE, RenderedPrompt, place_images, plain, render

__all__ = [
    "IMAGE",
    "RenderedPrompt",
    "critic_answer",
    "critic_question",
    "expander_question",
    "place_images",
    "plain",
    "planner_answer",
    "planner_question",
    "planner_turn",
    "render",
    "scorer_question",
]
