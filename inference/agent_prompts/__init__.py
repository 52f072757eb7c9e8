"""Agents' prompts and answers: versioned templates, formatting for training, parsing."""

from .formatting import critic_answer, planner_answer
from .prompts import critic_prompt, expander_prompt, planner_prompt, planner_turn, scorer_prompt
from .templates import IMAGE, RenderedPrompt, escape_tags, insert_image_tags, render

__all__ = [
    "IMAGE",
    "RenderedPrompt",
    "critic_answer",
    "critic_prompt",
    "escape_tags",
    "expander_prompt",
    "insert_image_tags",
    "planner_answer",
    "planner_prompt",
    "planner_turn",
    "render",
    "scorer_prompt",
]
