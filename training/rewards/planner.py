"""Rewards of the planner's answers: whether a plan can be read, and what a grader says of it.

    R = 0.5 * format + 0.5 * accuracy

`format` is 1 for an answer that can be parsed, `accuracy` 1 for a plan that leads to what was
requested or, as the settings say, for one of which the loop makes pictures that do. The paper
reinforces the critic alone: this goes beyond it. A grade that the grader cannot give, or that
fails, is no reward: the rollout is masked.
"""

from dataclasses import dataclass, replace

from pydantic import Field

from inference.agent_prompts.formatting import parse_plan
from inference.calls.ask import ModelCalls
from inference.calls.retry import summarize_error
from inference.loop import Loop, drawn_images
from inference.roles import Grader, Plan, PlanRequest, RequestOutcome, UnusableAnswerError
from inference.settings import LoopSettings
from schemas.yaml_config import ConfigModel

from .reward import FORMAT_WEIGHT, PlanRewardSettings, RewardParts
from .rollouts import RolloutResult


class PlannerState(ConfigModel):
    """What the planner was shown, as in a row of `planner_rl`."""

    request: str = Field(description="The user's request")
    images: list[str] = Field(description="sha256 of its images")


@dataclass(frozen=True)
class PlannerReward:
    """Grades answers of the planner. A row's id is that of its prompt.

    Args:
        calls: of this run; its roles draw and judge where the outcome counts.
        loop: how pictures are made of a plan.
    """

    calls: ModelCalls
    grader: Grader
    settings: PlanRewardSettings
    loop: LoopSettings

    async def grade(self, row_id: str, response: str, state: PlannerState) -> RolloutResult:
        """An answer's parts and reward."""
        try:
            plan = parse_plan(response)
        except UnusableAnswerError:
            return RolloutResult("malformed", RewardParts(0.0), 0.0)
        form, image = RewardParts(1.0), None
        try:
            images = [await self.calls.image(sha256) for sha256 in state.images]
            request = PlanRequest(state.request, tuple(images))
            outcome = await self._outcome(RequestOutcome(row_id, request, plan), plan)
            image = outcome.final.sha256 if outcome.final else None
            is_right = await self._is_right(outcome)
        except Exception as error:  # of a model that was asked, or of the image store
            return RolloutResult("masked", form, error=summarize_error(error), image=image)
        if is_right is None:
            problem = f"{self.grader.name} gave no grade"
            return RolloutResult("masked", form, error=problem, image=image)
        parts = RewardParts(1.0, float(is_right))
        reward = FORMAT_WEIGHT + (1 - FORMAT_WEIGHT) * is_right
        return RolloutResult("scored", parts, reward, image=image)

    async def _outcome(self, outcome: RequestOutcome, plan: Plan) -> RequestOutcome:
        """With the pictures that the loop makes of the plan, where they count; none where it cannot
        be followed."""
        if self.settings.of == "plan":
            return outcome
        trajectory = Loop(self.calls, self.loop, outcome.prompt_id, plan, outcome.request.images)
        images, _ = await drawn_images(trajectory)
        return replace(outcome, images=tuple(images.items()))

    async def _is_right(self, outcome: RequestOutcome) -> bool | None:
        if self.settings.of == "plan":
            return (await self.grader.grade_plan(outcome)).correct
        return (await self.grader.grade_outcome(outcome)).success
