"""What the agents are asked and how they answer: versioned templates and writers of answers."""

from .formatting import critic_answer, planner_answer
from .prompts import critic_prompt, expander_prompt, planner_prompt, planner_turn, scorer_prompt
from .templates import IMAGE, RenderedPrompt, escape_tags, place_images, render

__all__ = [
    "IMAGE",
    "RenderedPrompt",
    "critic_answer",
    "critic_prompt",
    "escape_tags",
    "expander_prompt",
    "place_images",
    "planner_answer",
    "planner_prompt",
    "planner_turn",
    "render",
    "scorer_prompt",
]
