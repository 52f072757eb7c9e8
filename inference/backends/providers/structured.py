"""Completions of models, and JSON answers in them: their schemas, and how they are parsed.

Reasoning is the first field, so that a model reasons before it decides. Malformed JSON is
repaired; values are never guessed. Class names and descriptions are part of the schemas that are
sent: they, and docstrings of the answers, enter what a model is asked.
"""

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from schemas.errors import first_problem
from warehouse import EncodedImage

from ...questions import AnswerFormatError, AnswerItem, StructuredAnswer
from ...roles import Plan, PlanStep, QualityGrades, Score, SemanticsGrades, Verdict


@dataclass(frozen=True)
class CompletionResult:
    """An answer. One with a `refusal` is paid for like any other.

    `is_complete` is false where it was cut off at `max_tokens`.
    """

    text: str
    is_complete: bool = True
    refusal: str | None = None
    images: tuple[EncodedImage, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


AnswerType = TypeVar("AnswerType", bound=StructuredAnswer)


class StepAnswer(AnswerItem):
    step_number: int
    step_name: str
    instruction: str | None
    prompt: str | None
    auxiliary_text: str | None


class PlanAnswer(StructuredAnswer):
    execution_plan: list[StepAnswer]

    def value(self) -> Plan:
        steps = tuple(PlanStep(**step.model_dump()) for step in self.execution_plan)
        return Plan(steps, self.reasoning)


class VerdictAnswer(StructuredAnswer):
    previous_step_success: bool
    refine_prompt: str

    def value(self) -> Verdict:
        accepted = self.previous_step_success
        return Verdict(accepted, "" if accepted else self.refine_prompt.strip(), self.reasoning)


class ScoreAnswer(StructuredAnswer):
    edit_success: float = Field(ge=0, le=10)
    over_edit: float = Field(ge=0, le=10)
    naturalness: float = Field(ge=0, le=10)
    artifacts: float = Field(ge=0, le=10)

    def value(self) -> Score:
        return Score(**self.model_dump(exclude={"reasoning"}))


class SemanticsAnswer(StructuredAnswer):
    edit_success: float = Field(ge=0, le=10)
    over_edit: float = Field(ge=0, le=10)

    def value(self) -> SemanticsGrades:
        return SemanticsGrades(self.edit_success, self.over_edit)


class QualityAnswer(StructuredAnswer):
    naturalness: float = Field(ge=0, le=10)
    artifacts: float = Field(ge=0, le=10)

    def value(self) -> QualityGrades:
        return QualityGrades(self.naturalness, self.artifacts)


def parse_answer(completion: CompletionResult, answer_type: type[AnswerType]) -> AnswerType:
    """The answer that a model wrote.

    Raises:
        AnswerFormatError: it was cut off, violates the schema, or is no JSON that can be repaired.
    """
    if not completion.is_complete:  # repaired JSON would end with a truncated value
        raise AnswerFormatError(f"it was cut off after {completion.output_tokens} tokens")
    try:
        content = json.loads(completion.text)
    except (ValueError, RecursionError):
        content = _repair_json(completion.text)
    try:
        return answer_type.model_validate(content)
    except ValidationError as error:
        raise AnswerFormatError(first_problem(error, root="the answer")) from error


def _repair_json(text: str) -> Any:
    """The JSON object in a text; prose and code fences around it are removed."""
    import json_repair

    start, end = text.find("{"), text.rfind("}")
    if start < 0:
        raise AnswerFormatError("there is no JSON object in it")
    try:
        return json_repair.loads(text[start : end + 1 if end > start else None])
    except (ValueError, RecursionError) as error:  # thousands of open brackets
        raise AnswerFormatError("its JSON cannot be read") from error
