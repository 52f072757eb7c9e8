"""Parses the policy's answers: tolerant where the reference is, strict about the two keys."""

import re
from dataclasses import dataclass
from typing import Any

from inference.agent_prompts.formatting import REFINE_KEY, SUCCESS_KEY

_AROUND_TAGS = re.compile(r"\s*([<>/])\s*")
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class ParsedAnswer:
    """A verdict and the next prompt; an empty prompt stands for the one before."""

    verdict: bool
    refined_prompt: str


def parse_answer(text: str) -> ParsedAnswer | None:
    """The answer in a turn of the critic; None where it is malformed.

    As the reference parses it: white space around `<`, `>` and `/` is removed (also inside the
    prompt), `<think>` may be missing, and JSON is repaired. `<answer>` must be there, the verdict
    must be a boolean and the prompt a string.
    """
    content = _AROUND_TAGS.sub(r"\1", text).rpartition("</think>")[2]
    match = _ANSWER.search(content)
    answer = _load_json(match[1]) if match else None
    if not isinstance(answer, dict):
        return None
    verdict, refined = answer.get(SUCCESS_KEY), answer.get(REFINE_KEY)
    if not isinstance(verdict, bool) or not isinstance(refined, str):
        return None
    return ParsedAnswer(verdict, refined.strip())


def _load_json(text: str) -> Any:
    import json_repair

    try:
        return json_repair.loads(text)
    except (ValueError, RecursionError):  # thousands of open brackets, numbers without end
        return None
