"""Episodes: what a policy is shown, and what its answers are worth.

A seed names an episode: a request of the pack and, for `step`, one attempt at one of its steps. The
same seed shows the same, also in another process, and an answer gets the reward that our own GRPO
gives it (`training/rewards`).

| kind | the policy is | an episode |
|---|---|---|
| `step` | the critic | one image of a trajectory that the profile's agents play; one answer |
| `trajectory` | the critic | all images of a trajectory, which goes on with its verdicts |
| `plan` | the planner | a request; one answer |
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

from inference.agent_prompts.templates import planner_turn
from inference.calls.ask import CallSite, ModelCalls
from inference.calls.hashing import stable_hash
from inference.events import (
    AttemptJudged,
    Event,
    ImageGenerated,
    StepAccepted,
    StepExhausted,
    TrajectoryRecorder,
    plan_rows,
)
from inference.generators import roles_of_prompt
from inference.loop import Loop, check_plan
from inference.roles import (
    Critic,
    Grader,
    Plan,
    PlanRequest,
    RequestOutcome,
    UnusableAnswerError,
    qualified_name,
)
from inference.settings import LoopSettings
from schemas import FoundryError
from schemas.curation import Evaluation
from schemas.prompts import PromptRow
from warehouse import EncodedImage, Home

from ..rewards.critic import CriticReward, CriticState
from ..rewards.planner import PlannerReward, PlannerState
from ..rewards.policy_critic import CriticQuestion, PolicyCritic
from ..rewards.reward import RewardSettings
from ..rewards.rollouts import RolloutResult

EpisodeKind = Literal["step", "trajectory", "plan"]
_TRIES = 20  # requests in a row that no trajectory can be made of


@dataclass(frozen=True)
class Turn:
    """A question to the policy.

    Args:
        row_id: as in `critic_rl` or `planner_rl`.
        prompt: has `<image>` for each of `images`.
        grade: an answer's parts and reward.
    """

    row_id: str
    prompt: str
    images: tuple[EncodedImage, ...]
    grade: Callable[[str], Awaitable[RolloutResult]]


@dataclass(frozen=True)
class Outcome:
    """What a whole trajectory led to. `success`: None where the grader gives no grade."""

    success: bool | None
    drawings: int


Turns = AsyncGenerator[Turn | Outcome, str]  # an answer is sent to each turn


class Episodes(Protocol):
    def turns(self, prompt: PromptRow, seed: int) -> Turns:
        """Raises UnusableAnswerError: nothing can be made of the request."""


@dataclass(frozen=True)
class CriticRules:
    """How the critic is asked, and what is true of an image.

    Args:
        accept_at_least, reject_at_most: overall scores that contradict a verdict, as in curation.
    """

    question: CriticQuestion
    accept_at_least: float
    reject_at_most: float
    reward: RewardSettings

    def truth(self, accepted: bool | None, overall: float) -> bool:
        """The right verdict. `accepted`: by the profile's critic; None: it was not asked."""
        return (
            overall > self.reject_at_most if accepted is False else overall >= self.accept_at_least
        )


@dataclass(frozen=True)
class PlanEpisodes:
    """Episodes of the planner. `templates`: agent prompts without and with images."""

    reward: PlannerReward
    templates: tuple[str, str]

    async def turns(self, prompt: PromptRow, seed: int) -> Turns:
        question = planner_turn(PlanRequest(prompt.text), *self.templates)
        state = PlannerState(request=prompt.text, images=[])
        grade = partial(self.reward.grade, prompt.prompt_id, state=state)
        yield Turn(prompt.prompt_id, question.text, (), grade)


@dataclass(frozen=True)
class StepEpisodes:
    """Episodes of the critic: one of the images of a trajectory that the profile's agents play."""

    home: Home
    calls: ModelCalls
    loop: LoopSettings
    rules: CriticRules

    async def turns(self, prompt: PromptRow, seed: int) -> Turns:
        trajectory = await self._trajectory(prompt)
        async with aclosing(trajectory.events()) as events:
            attempts = [event async for event in events if isinstance(event, AttemptJudged)]
        if not attempts:
            raise UnusableAnswerError("the plan has no image")
        attempt = attempts[int(stable_hash("attempt", seed), 16) % len(attempts)]
        yield await self._turn(trajectory, attempt.draw, attempt.verdict.accepted)

    async def _trajectory(self, prompt: PromptRow, critic: Critic | None = None) -> "_Trajectory":
        """The loop over the profile's plan of a request, judged by its critic or another."""
        own = roles_of_prompt(self.calls.roles, prompt.prompt_id)
        roles = replace(own, critic=critic) if critic else own
        plan = (await self.calls.plan(CallSite(prompt.prompt_id), PlanRequest(prompt.text))).answer
        check_plan(plan, self.loop.max_steps)
        rows = plan_rows(prompt, plan, qualified_name(roles.planner))
        recorder = TrajectoryRecorder(prompt, rows, own, self.loop)
        loop = Loop(self.calls.with_roles(roles), self.loop, prompt.prompt_id, plan)
        return _Trajectory(prompt, plan, loop, recorder.trajectory_id, {})

    async def _turn(
        self, trajectory: "_Trajectory", draw: ImageGenerated, accepted: bool | None = None
    ) -> Turn:
        """A row of `critic_rl`. `accepted`: see `CriticRules.truth`."""
        calls, rules, goal = trajectory.loop.calls, self.rules, draw.step.prompt or ""
        site = CallSite(trajectory.prompt.prompt_id, draw.step.step_number, draw.iteration)
        score = (await calls.score(site, draw.source, draw.image, goal)).score
        question, images = rules.question.about(draw)
        evaluation = Evaluation(
            success=rules.truth(accepted, score.overall),
            semantics=score.semantics,
            quality=score.quality,
        )
        state = CriticState(
            origin_prompt=goal,
            rewritten_prompt=draw.prompt if draw.iteration else "",
            origin_image=await asyncio.to_thread(self.home.images.put, images[0]),
            evaluation=evaluation,
        )
        generator, earlier = calls.roles.generator, trajectory.images_before(draw.step.step_number)
        reward = CriticReward(
            *(calls, lambda _row: generator, rules.reward),
            *(self.loop.conditioning, lambda _row: earlier),
        )
        row_id = f"{trajectory.trajectory_id}/{draw.step.step_number}/{draw.iteration}/0"
        return Turn(row_id, question, images, partial(reward.grade, row_id, state=state))


@dataclass(frozen=True)
class TrajectoryEpisodes(StepEpisodes):
    """Episodes of the critic: every image of a trajectory, in which its verdicts decide."""

    grader: Grader

    async def turns(self, prompt: PromptRow, seed: int) -> Turns:
        policy = PolicyCritic()
        trajectory = await self._trajectory(prompt, policy)
        drawings = 0
        try:
            async with aclosing(trajectory.events()) as events:
                async for event in events:
                    if isinstance(event, ImageGenerated):
                        drawings += 1
                        policy.answer = yield await self._turn(trajectory, event)
        except UnusableAnswerError:
            if not drawings:
                raise
            trajectory.chosen.clear()  # a prompt of the policy's that is not drawn
        request, images = PlanRequest(prompt.text), tuple(trajectory.chosen.items())
        outcome = RequestOutcome(prompt.prompt_id, request, trajectory.plan, images)
        yield Outcome((await self.grader.grade_outcome(outcome)).success, drawings)


@dataclass(frozen=True)
class _Trajectory:
    """A trajectory under way. `chosen`: images by step."""

    prompt: PromptRow
    plan: Plan
    loop: Loop
    trajectory_id: str
    chosen: dict[int, EncodedImage]

    async def events(self) -> AsyncGenerator[Event, None]:
        """Those of the loop."""
        async with aclosing(self.loop.events()) as events:
            async for event in events:
                if isinstance(event, StepAccepted | StepExhausted) and event.chosen:
                    self.chosen[event.step.step_number] = event.chosen.draw.image
                yield event

    def images_before(self, step_number: int) -> tuple[str, ...]:
        """sha256 of the images of earlier steps."""
        return tuple(image.sha256 for number, image in self.chosen.items() if number < step_number)


@dataclass(frozen=True)
class Environment:
    """Episodes by seed. `prompts`: of the pack, in its order; a seed names one of them."""

    name: str
    episodes: Episodes
    prompts: Sequence[PromptRow]

    async def start(self, seed: int) -> tuple[Turns, Turn]:
        """An episode and its first turn; of the next request where nothing can be made of one.

        Raises FoundryError: nothing can be made of several, or a model does not answer.
        """
        for number in range(seed, seed + _TRIES):
            turns = self.episodes.turns(self.prompts[number % len(self.prompts)], seed)
            try:
                turn = await anext(turns)
            except UnusableAnswerError:
                continue
            assert isinstance(turn, Turn)
            return turns, turn
        raise FoundryError(f"nothing can be made of {_TRIES} requests in a row")
