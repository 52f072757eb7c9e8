"""How agents write their answers, and how they are read: `<think>`, then JSON in `<answer>`.

The key names are those of the reference's formats. When an answer is read, its JSON is repaired,
or the Python form of it that the authors' agents write, where `'None'` stands for no text and
`'True'` for a verdict; its meaning is not guessed.
"""

import json
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from schemas.errors import first_problem

from ..roles import Plan, PlanStep, UnusableAnswerError, Verdict
from .templates import escape_tags

BLANKS = " \t\n\r"
SUCCESS_KEY, REFINE_KEY, PLAN_KEY = "previous_step_success", "refine_prompt", "execution_plan"
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)(</answer>|\Z)", re.DOTALL)
_STEP_KEY = re.compile(r"""['"]step_number['"]\s*:""")
_VERDICTS = {"true": True, "false": False}
_EXCERPT_CHARACTERS = 60


def _clean_step(step: object) -> object:
    """A step, whose texts may be 'None'; an error where the next step has slipped into one."""
    if not isinstance(step, dict):
        return step
    if any(isinstance(value, str) and _STEP_KEY.search(value) for value in step.values()):
        raise ValueError("a text of this step contains the next one")
    return {name: None if value == "None" else value for name, value in step.items()}


class _Plan(BaseModel):
    steps: list[Annotated[PlanStep, BeforeValidator(_clean_step)]] = Field(
        alias=PLAN_KEY, min_length=1
    )

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, content: Any) -> Any:
        """The authors' planner also answers with the steps alone."""
        return {PLAN_KEY: content} if isinstance(content, list) else content


def critic_answer(verdict: Verdict) -> str:
    """The whole assistant message of a critic."""
    return _message(verdict.reasoning, verdict_json(verdict))


def planner_answer(plan: Plan) -> str:
    """The whole assistant message of a planner; absent texts are null."""
    steps = {PLAN_KEY: [_step(step) for step in plan.steps]}
    return _message(plan.reasoning, json.dumps(steps, ensure_ascii=False))


def verdict_json(verdict: Verdict, success_key: str = SUCCESS_KEY) -> str:
    """The verdict as a JSON object; an accepting one has an empty rewritten prompt."""
    refined = "" if verdict.accepted else escape_tags(verdict.refined_prompt)
    return json.dumps({success_key: verdict.accepted, REFINE_KEY: refined}, ensure_ascii=False)


def _message(reasoning: str, answer: str) -> str:
    return f"<think>{escape_tags(reasoning).strip(BLANKS)}</think>\n<answer>{answer}</answer>"


def _step(step: PlanStep) -> dict[str, object]:
    """Step number, name, instruction, prompt and auxiliary text, in this order."""
    return {
        name: escape_tags(value) if isinstance(value, str) else value
        for name, value in vars(step).items()
    }


def parse_plan(text: str) -> Plan:
    """The plan in a planner's answer.

    Raises:
        UnusableAnswerError: there is none, it was cut off, or it does not match the schema.
    """
    reasoning, answer, is_closed = _split(text)
    if answer is None:
        ellipsis = "..." if len(text) > _EXCERPT_CHARACTERS else ""
        excerpt = repr(text[:_EXCERPT_CHARACTERS] + ellipsis)
        raise UnusableAnswerError(f"no <answer> in the planner's text: {excerpt}")
    if not is_closed:  # repaired, it would be a plan whose last steps are missing
        raise UnusableAnswerError(f"the planner's answer was cut off at character {len(text)}")
    try:
        plan = _Plan.model_validate(_repair_json(answer))
    except ValidationError as error:
        problem = first_problem(error, root="answer")
        raise UnusableAnswerError(f"the planner's JSON is not a plan: {problem}") from error
    return Plan(tuple(plan.steps), reasoning)


def parse_verdict(text: str) -> Verdict:
    """The verdict in a critic's answer.

    An unreadable one is a rejection without a new prompt, after which the loop draws the same
    prompt with another seed.
    """
    try:
        return read_verdict(text)
    except UnusableAnswerError:
        return Verdict(False, "", _split(text)[0] or text.strip())


def read_verdict(text: str) -> Verdict:
    """The verdict in a critic's answer.

    Raises:
        UnusableAnswerError: there is none.
    """
    reasoning, answer, _ = _split(text)
    content = _repair_json(answer) if answer else None
    verdict = content.get(SUCCESS_KEY) if isinstance(content, dict) else None
    refined = content.get(REFINE_KEY) if isinstance(content, dict) else None
    if isinstance(verdict, str):
        verdict = _VERDICTS.get(verdict.strip().lower())
    if not isinstance(verdict, bool) or not isinstance(refined, str):
        raise UnusableAnswerError("no verdict and new prompt in the critic's <answer>")
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
