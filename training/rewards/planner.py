"""Rewards of the planner's answers: whether a plan can be read, and what a grader says of it.

    R = 0.5 * format + 0.5 * accuracy

`format` is 1 for an answer that can be parsed, `accuracy` 1 for a plan that leads to what was
requested or, as the settings say, for one of which the loop makes pictures that do. In an episode
the policy judges these pictures itself, and the step part, of drawings that it does without as
well, stands in place of `accuracy`. The paper reinforces the critic alone: this goes beyond it. A
grade that the grader cannot give, or that fails, is no reward: the rollout is masked.
"""

from dataclasses import dataclass

from pydantic import Field

from inference.agent_prompts.formatting import parse_plan
from inference.calls.ask import ModelCalls
from inference.calls.retry import summarize_error
from inference.loop import Loop, drawn_images
from inference.roles import Grader, Plan, PlanRequest, RequestOutcome, UnusableAnswerError
from inference.settings import LoopSettings
from schemas.yaml_config import ConfigModel
from warehouse import EncodedImage

from .policy_critic import CriticQuestion, drawn_by_policy, next_question
from .reward import FORMAT_WEIGHT, PlanRewardSettings, RewardParts, parse_answer, trajectory_reward
from .rollouts import RolloutResult


class PlannerState(ConfigModel):
    """What the planner was shown, as in a row of `planner_rl`."""

    request: str = Field(description="The user's request")
    images: list[str] = Field(description="sha256 of its images")
    later: tuple[str, ...] = Field(
        (), description="The policy's answers to the images of its plan, in an episode"
    )


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
        plan = self._readable(response, state)
        if plan is None:
            return RolloutResult("malformed", RewardParts(0.0), 0.0)
        form, image = RewardParts(1.0), None
        try:
            outcome, drawings = await self._outcome(row_id, plan, state)
            image = outcome.final.sha256 if outcome.final else None
            is_right = await self._is_right(outcome)
        except Exception as error:  # of a model that was asked, or of the image store
            return RolloutResult("masked", form, error=summarize_error(error), image=image)
        if is_right is None:
            problem = f"{self.grader.name} gave no grade"
            return RolloutResult("masked", form, error=problem, image=image)
        parts = self._parts(is_right, plan, drawings)
        content = parts.accuracy if parts.step is None else parts.step
        reward = FORMAT_WEIGHT + (1 - FORMAT_WEIGHT) * (content or 0.0)
        return RolloutResult("scored", parts, reward, image=image)

    def _readable(self, response: str, state: PlannerState) -> Plan | None:
        try:
            return parse_plan(response)
        except UnusableAnswerError:
            return None

    async def _outcome(
        self, row_id: str, plan: Plan, state: PlannerState
    ) -> tuple[RequestOutcome, int]:
        """With the pictures that are made of the plan, where they count, and their drawings."""
        images = [await self.calls.image(sha256) for sha256 in state.images]
        request = PlanRequest(state.request, tuple(images))
        loop = Loop(self.calls, self.loop, row_id, plan, request.images)
        chosen, drawings = await self._draw(loop, state)
        return RequestOutcome(row_id, request, plan, tuple(chosen.items())), drawings

    async def _draw(self, loop: Loop, state: PlannerState) -> tuple[dict[int, EncodedImage], int]:
        """As `drawn_images`; none where they do not count."""
        return ({}, 0) if self.settings.of == "plan" else await drawn_images(loop)

    async def _is_right(self, outcome: RequestOutcome) -> bool | None:
        if self.settings.of == "plan":
            return (await self.grader.grade_plan(outcome)).correct
        return (await self.grader.grade_outcome(outcome)).success

    def _parts(self, is_right: bool, plan: Plan, drawings: int) -> RewardParts:
        return RewardParts(1.0, float(is_right))


@dataclass(frozen=True)
class PlannerEpisodeReward(PlannerReward):
    """Grades episodes of an agent of both roles: a plan, and its judgements of what is drawn of
    it, by the end of the trajectory. An answer that cannot be read ends it without reward."""

    question: CriticQuestion

    async def next_turn(
        self, row_id: str, response: str, state: PlannerState
    ) -> tuple[str, tuple[EncodedImage, ...]] | None:
        """As `next_question`. It is played from its start, whose calls are journaled."""
        plan = self._readable(response, state)
        if plan is None:
            return None
        return await next_question(self._outcome(row_id, plan, state), self.question)

    def _readable(self, response: str, state: PlannerState) -> Plan | None:
        plan = super()._readable(response, state)
        return plan if all(map(parse_answer, state.later)) else None

    async def _draw(self, loop: Loop, state: PlannerState) -> tuple[dict[int, EncodedImage], int]:
        return await drawn_by_policy(loop, state.later)

    def _parts(self, is_right: bool, plan: Plan, drawings: int) -> RewardParts:
        most = self.loop.t_max * sum(step.prompt is not None for step in plan.steps)
        step = trajectory_reward(is_right, drawings, most)
        return RewardParts(1.0, float(is_right), step)
