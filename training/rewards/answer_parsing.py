"""Reading what the policy wrote: tolerant where the reference is, strict about the two keys."""

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
    """The answer in a turn of the critic, or None where it is malformed.

    As the reference reads it: blanks around `<`, `>` and `/` do not count (inside the prompt
    neither), `<think>` may be missing, and JSON is repaired. `<answer>` must be there, the verdict
    must be a boolean and the prompt a string.
    """
    content = _AROUND_TAGS.sub(r"\1", text).rpartition("</think>")[2]
    found = _ANSWER.search(content)
    answer = _repaired(found[1]) if found else None
    if not isinstance(answer, dict):
        return None
    verdict, refined = answer.get(SUCCESS_KEY), answer.get(REFINE_KEY)
    if not isinstance(verdict, bool) or not isinstance(refined, str):
        return None
    return ParsedAnswer(verdict, refined.strip())


def _repaired(text: str) -> Any:
    import json_repair

    try:
        return json_repair.loads(text)
    except (ValueError, RecursionError):  # thousands of open brackets, numbers without end
        return None
