"""The protocol of graders, which say whether a plan and a final image are what a request asks for.

Evaluation and promotion know graders only by it. A grader gives None for a grade that it cannot
give: such a metric is then missing, not 0.
"""

from dataclasses import dataclass
from typing import Protocol

from warehouse import EncodedImage

from .roles import Plan, PlanRequest


@dataclass(frozen=True)
class PlanGrade:
    """Grades of a plan.

    Attributes:
        valid: its form is right: step numbers, numbers of images and texts, readable prompts.
        correct: carried out without mistakes, it leads to what was asked for.
    """

    valid: bool | None
    correct: bool | None


class Grader(Protocol):
    """Grades plans and outcomes. A plan of None is an answer in which no plan could be read."""

    name: str

    async def grade_plan(self, request: PlanRequest, plan: Plan | None) -> PlanGrade: ...

    async def grade_outcome(
        self, request: PlanRequest, plan: Plan | None, final: EncodedImage | None
    ) -> bool | None:
        """Whether the last accepted image is right; `final` is None where none was accepted."""
        ...
