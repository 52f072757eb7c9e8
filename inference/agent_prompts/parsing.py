"""From an agent's text to a plan or a verdict: JSON is repaired, meaning is not guessed."""

import re
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from schemas.errors import first_problem

from ..roles import Plan, PlanStep, UnusableAnswerError, Verdict
from .formatting import PLAN_KEY, REFINE_KEY, SUCCESS_KEY

_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)(</answer>|\Z)", re.DOTALL)
_EXCERPT_CHARACTERS = 60


class _Step(BaseModel):
    step_number: int
    step_name: str = ""
    instruction: str | None = None
    prompt: str | None = None
    auxiliary_text: str | None = None


class _Plan(BaseModel):
    steps: list[_Step] = Field(alias=PLAN_KEY, min_length=1)


def parse_plan(text: str) -> Plan:
    """The plan in a planner's answer.

    Raises:
        UnusableAnswerError: there is none, it was cut off, or it does not match the schema.
    """
    reasoning, answer, is_closed = _split(text)
    if answer is None:
        raise UnusableAnswerError(f"no <answer> in the planner's text: {_excerpt(text)}")
    if not is_closed:  # repaired, it would be a plan whose last steps are missing
        raise UnusableAnswerError(f"the planner's answer was cut off at character {len(text)}")
    try:
        plan = _Plan.model_validate(_repair_json(answer))
    except ValidationError as error:
        problem = first_problem(error, root="answer")
        raise UnusableAnswerError(f"the planner's JSON is not a plan: {problem}") from error
    return Plan(tuple(PlanStep(**step.model_dump()) for step in plan.steps), reasoning)


def parse_verdict(text: str) -> Verdict:
    """The verdict in a critic's answer.

    An unreadable one is a rejection without a new prompt, after which the loop draws the same
    prompt with another seed: asking a greedy critic again would give the same answer.
    """
    reasoning, answer, _ = _split(text)
    content = _repair_json(answer) if answer else None
    verdict = content.get(SUCCESS_KEY) if isinstance(content, dict) else None
    refined = content.get(REFINE_KEY) if isinstance(content, dict) else None
    if not isinstance(verdict, bool) or not isinstance(refined, str):
        return Verdict(False, "", reasoning or text.strip())
    return Verdict(verdict, "" if verdict else refined.strip(), reasoning)


def _split(text: str) -> tuple[str, str | None, bool]:
    """Reasoning, answer (None without its tag), and whether the answer's tag was closed."""
    thought = _THINK.search(text)
    answer = _ANSWER.search(text.rpartition("</think>")[2])
    reasoning = thought[1].strip() if thought else ""
    return reasoning, answer[1] if answer else None, bool(answer and answer[2])


def _repair_json(text: str) -> Any:
    import json_repair

    try:
        return json_repair.loads(text)
    except (ValueError, RecursionError):  # thousands of open brackets, numbers without end
        return None


def _excerpt(text: str) -> str:
    ellipsis = "..." if len(text) > _EXCERPT_CHARACTERS else ""
    return repr(text[:_EXCERPT_CHARACTERS] + ellipsis)
