"""How agents write their answers: reasoning in `<think>`, JSON in `<answer>`.

The one place that knows the key names of the reference's formats. Where a million verdicts are
written at once, `critic_answer_sql` says the same to DuckDB.
"""

import json

from ..roles import Plan, PlanStep, Verdict
from .templates import escape_tags, escape_tags_sql

_BLANKS = " \t\n\r"
SUCCESS_KEY, REFINE_KEY, PLAN_KEY = "previous_step_success", "refine_prompt", "execution_plan"


def critic_answer(verdict: Verdict) -> str:
    """A critic's whole turn; an accepting verdict has an empty rewritten prompt."""
    refined = "" if verdict.accepted else verdict.refined_prompt
    return _turn(
        verdict.reasoning, {SUCCESS_KEY: verdict.accepted, REFINE_KEY: escape_tags(refined)}
    )


def planner_answer(plan: Plan) -> str:
    """A planner's whole turn; steps keep their numbers, absent texts stay null."""
    return _turn(plan.reasoning, {PLAN_KEY: [_step(step) for step in plan.steps]})


def verdict_json_sql(accepted: str, refined: str, success_key: str = SUCCESS_KEY) -> str:
    """The verdict's JSON object as a DuckDB expression over two expressions."""
    text = f"CASE WHEN {accepted} THEN '' ELSE {escape_tags_sql(refined)} END"
    return (
        f"""'{{"{success_key}": ' || CASE WHEN {accepted} THEN 'true' ELSE 'false' END"""
        f""" || ', "{REFINE_KEY}": ' || CAST(to_json({text}) AS VARCHAR) || '}}'"""
    )


def critic_answer_sql(accepted: str, refined: str, reasoning: str) -> str:
    """`critic_answer` as a DuckDB expression over three expressions."""
    think = f"'<think>' || trim({escape_tags_sql(reasoning)}, '{_BLANKS}') || '</think>'"
    return (
        f"{think} || chr(10) || '<answer>' || {verdict_json_sql(accepted, refined)} || '</answer>'"
    )


def _turn(reasoning: str, answer: dict[str, object]) -> str:
    think, text = escape_tags(reasoning).strip(_BLANKS), json.dumps(answer, ensure_ascii=False)
    return f"<think>{think}</think>\n<answer>{text}</answer>"


def _step(step: PlanStep) -> dict[str, object]:
    return {
        "step_number": step.step_number,
        "step_name": escape_tags(step.step_name),
        "instruction": _escaped(step.instruction),
        "prompt": _escaped(step.prompt),
        "auxiliary_text": _escaped(step.auxiliary_text),
    }


def _escaped(text: str | None) -> str | None:
    return None if text is None else escape_tags(text)
