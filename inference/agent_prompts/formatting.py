"""How agents write their answers: reasoning in `<think>`, JSON in `<answer>`.

The key names are those of the reference's formats.
"""

import json

from ..roles import Plan, PlanStep, Verdict
from .templates import escape_tags

_BLANKS = " \t\n\r"
SUCCESS_KEY, REFINE_KEY, PLAN_KEY = "previous_step_success", "refine_prompt", "execution_plan"


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
    return f"<think>{escape_tags(reasoning).strip(_BLANKS)}</think>\n<answer>{answer}</answer>"


def _step(step: PlanStep) -> dict[str, object]:
    return {
        "step_number": step.step_number,
        "step_name": escape_tags(step.step_name),
        "instruction": _escape_optional(step.instruction),
        "prompt": _escape_optional(step.prompt),
        "auxiliary_text": _escape_optional(step.auxiliary_text),
    }


def _escape_optional(text: str | None) -> str | None:
    return None if text is None else escape_tags(text)
