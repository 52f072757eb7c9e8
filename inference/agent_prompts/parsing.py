"""From what a model wrote to a plan or a verdict: JSON is repaired, meaning is not guessed."""

import re
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from ..roles import Plan, PlanStep, UnusableAnswerError, Verdict
from .formatting import PLAN_KEY, REFINE_KEY, SUCCESS_KEY

_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)(</answer>|\Z)", re.DOTALL)
_SHOWN = 60


class _Step(BaseModel):
    step_number: int
    step_name: str = ""
    instruction: str | None = None
    prompt: str | None = None
    auxiliary_text: str | None = None


class _Plan(BaseModel):
    steps: list[_Step] = Field(alias=PLAN_KEY, min_length=1)


def parse_plan(text: str) -> Plan:
    """The plan in a planner's turn.

    Raises:
        BadAnswer: there is none, it was cut off, or it is not of the form that was asked for.
    """
    reasoning, answer, ended = _parts(text)
    if answer is None:
        raise UnusableAnswerError(f"no <answer> in what the planner wrote: {_beginning(text)}")
    if not ended:  # repaired, it would be a plan whose last steps are missing
        raise UnusableAnswerError(
            f"the planner's answer was cut off at its {len(text)}th character"
        )
    try:
        plan = _Plan.model_validate(_repaired(answer))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "answer"
        raise UnusableAnswerError(
            f"the planner's JSON is no plan: {where}: {first['msg']}"
        ) from error
    return Plan(tuple(PlanStep(**step.model_dump()) for step in plan.steps), reasoning)


def parse_verdict(text: str) -> Verdict:
    """The verdict in a critic's turn.

    What cannot be read is a rejection without a new prompt, after which the loop draws the same
    prompt with another seed: asking a greedy critic again would give the same answer.
    """
    reasoning, answer, _ = _parts(text)
    content = _repaired(answer) if answer else None
    verdict = content.get(SUCCESS_KEY) if isinstance(content, dict) else None
    refined = content.get(REFINE_KEY) if isinstance(content, dict) else None
    if not isinstance(verdict, bool) or not isinstance(refined, str):
        return Verdict(False, "", reasoning or text.strip())
    return Verdict(verdict, "" if verdict else refined.strip(), reasoning)


def _parts(text: str) -> tuple[str, str | None, bool]:
    """Reasoning, answer (None without its tag), and whether the answer came to its end."""
    thought = _THINK.search(text)
    found = _ANSWER.search(text.rpartition("</think>")[2])
    reasoning = thought[1].strip() if thought else ""
    return reasoning, found[1] if found else None, bool(found and found[2])


def _repaired(text: str) -> Any:
    import json_repair

    try:
        return json_repair.loads(text)
    except (ValueError, RecursionError):  # thousands of open brackets, numbers without end
        return None


def _beginning(text: str) -> str:
    return repr(text[:_SHOWN] + ("..." if len(text) > _SHOWN else ""))
