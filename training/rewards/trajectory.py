"""Rewards of the critic's answers by what becomes of the trajectory: the loop goes on with the
answer, to the end of the plan, and the step part is how it ended.

From the judged attempt on, the answer stands in place of the recorded verdict; all before it is as
recorded. What follows is judged by the profile's critic or, in an episode, by the policy itself,
whose answers are all trained on. The paper rewards single steps, since whole trajectories are too
many drawings: this goes beyond it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from inference.calls.ask import ModelCalls
from inference.loop import Loop, drawn_images
from inference.roles import (
    Generator,
    Grader,
    Plan,
    PlanRequest,
    PlanStep,
    RequestOutcome,
    qualified_name,
)
from inference.settings import LoopSettings
from schemas import FoundryError
from warehouse import EncodedImage, Home
from warehouse.sql import verify_referenced
from warehouse.views import connect

from .critic import CriticReward, CriticState, StepPart, attempt_of, next_prompt
from .policy_critic import CriticQuestion, drawn_by_policy, next_question
from .reward import ParsedAnswer, RewardSettings, parse_answer, trajectory_reward
from .rollouts import RolloutResult

_RECORDED = """
    SELECT * FROM (
        SELECT concat_ws('/', trajectory_id, judged.step_number, iteration) AS id,
            judged.step_number, iteration, image, prompt_id, judged.shard, text, input_images,
            (SELECT list({step_number: earlier.step_number, image: earlier.image})
             FROM attempts earlier
             WHERE earlier.trajectory_id = judged.trajectory_id AND earlier.chosen
                 AND earlier.step_number < judged.step_number) AS earlier,
            (SELECT list({step_number: step.step_number, step_name: step.step_name,
                instruction: step.instruction, prompt: step.prompt,
                auxiliary_text: step.auxiliary_text} ORDER BY step.step_number)
             FROM plans step WHERE step.plan_id = trajectories.plan_id) AS steps
        FROM attempts judged JOIN trajectories USING (trajectory_id, prompt_id)
            JOIN prompts USING (prompt_id)
    )
"""


@dataclass(frozen=True)
class JudgedAttempt:
    """The attempt that a row of `critic_rl` asks about, in its recorded trajectory.

    Args:
        earlier: sha256 of the images chosen before, by step.
    """

    shard: str
    prompt_id: str
    request: str
    input_images: tuple[str, ...]
    plan: Plan
    earlier: Mapping[int, str]
    step_number: int
    iteration: int
    image: str

    def steps_from(self, number: int) -> tuple[PlanStep, ...]:
        return tuple(step for step in self.plan.steps if step.step_number >= number)

    def most_drawings(self, t_max: int) -> int:
        """How many may follow it, where every one is rejected."""
        later = [step for step in self.steps_from(self.step_number + 1) if step.prompt is not None]
        return t_max * len(later) + t_max - self.iteration - 1


class TrajectoryReward(CriticReward):
    """Grades answers of the critic by the end of their trajectories.

    Args:
        grader: of the request and the pictures that came of it.
        loop: how the trajectory goes on.
        attempts: by the id of a row, without the number of its copy.
    """

    def __init__(
        self,
        calls: ModelCalls,
        generator_of: Callable[[str], Generator],
        settings: RewardSettings,
        loop: LoopSettings,
        grader: Grader,
        attempts: Mapping[str, JudgedAttempt],
    ) -> None:
        super().__init__(calls, generator_of, settings, loop.conditioning)
        self._loop, self._grader, self._attempts = loop, grader, attempts

    async def _step_part(self, row_id: str, answer: ParsedAnswer, state: CriticState) -> StepPart:
        """The mean over `draws` continuations, the first one with the trajectory's own seed."""
        continuations = self._continuations(row_id, answer, state)
        outcomes = await asyncio.gather(*(each.play() for each in continuations))
        judged, calls = continuations[0].judged, continuations[0].calls
        value = fmean([await self._value(judged, *each) for each in outcomes])
        final, generator = outcomes[0][0].final, qualified_name(calls.roles.generator)
        return StepPart(value, final.sha256 if final else None, generator=generator)

    def _continuations(
        self, row_id: str, answer: ParsedAnswer, state: CriticState
    ) -> list["_Continuation"]:
        judged = self._attempts.get(attempt_of(row_id))
        if judged is None:
            raise FoundryError(
                f"row {row_id} is of no trajectory of this home: set reward.of to step"
            )
        roles = replace(self._calls.roles, generator=self._generator_of(row_id))
        verdict = answer.verdict, next_prompt(answer, state)
        seeds = range(self._loop.seed, self._loop.seed + self.settings.draws)
        loops = [self._loop.model_copy(update={"seed": seed}) for seed in seeds]
        calls = self._calls.with_roles(roles)
        return [_Continuation(calls, loop, judged, *verdict) for loop in loops]

    async def _value(self, judged: JudgedAttempt, outcome: RequestOutcome, drawings: int) -> float:
        success = (await self._grader.grade_outcome(outcome)).success
        if success is None:
            raise FoundryError(f"{self._grader.name} gave no grade")
        return trajectory_reward(success, drawings, judged.most_drawings(self._loop.t_max))


class CriticEpisodeReward(TrajectoryReward):
    """Grades episodes of the critic: all its answers, by the end of the trajectory."""

    def __init__(self, question: CriticQuestion, *args: Any) -> None:
        super().__init__(*args)
        self._question = question

    async def next_turn(
        self, row_id: str, response: str, state: CriticState
    ) -> tuple[str, tuple[EncodedImage, ...]] | None:
        """As `next_question`. It is played from its start, whose calls are journaled."""
        answer = self._readable(parse_answer(response), state)
        if answer is None:
            return None
        [continuation] = self._continuations(row_id, answer, state)
        return await next_question(continuation.play(), self._question)

    async def _grade(
        self, answer: ParsedAnswer | None, state: CriticState, row_id: str
    ) -> RolloutResult:
        return await super()._grade(self._readable(answer, state), state, row_id)

    def _readable(self, answer: ParsedAnswer | None, state: CriticState) -> ParsedAnswer | None:
        """None where a later answer cannot be read, which ends the episode."""
        return answer if all(map(parse_answer, state.later)) else None

    def _continuations(
        self, row_id: str, answer: ParsedAnswer, state: CriticState
    ) -> list["_Continuation"]:
        [continuation] = super()._continuations(row_id, answer, state)
        return [replace(continuation, answers=state.later)]


@dataclass(frozen=True)
class _Continuation:
    """A recorded trajectory that goes on with another verdict and next prompt.

    Args:
        answers: of the policy to the images that follow; None: the profile's critic judges them.
    """

    calls: ModelCalls
    settings: LoopSettings
    judged: JudgedAttempt
    accepted: bool
    prompt: str
    answers: tuple[str, ...] | None = None

    async def play(self) -> tuple[RequestOutcome, int]:
        """What the request leads to, and the drawings that it still takes.

        It leads to nothing where a prompt is refused.
        """
        judged, step = self.judged, self.judged.step_number
        inputs = await self._load(judged.input_images)
        images = dict(zip(judged.earlier, await self._load(judged.earlier.values()), strict=True))
        rest, begun, drawings = tuple[PlanStep, ...](), (0, ""), 0
        if self._is_redrawn:
            rest, begun = judged.steps_from(step), (judged.iteration + 1, self.prompt)
        elif self.accepted or self.settings.on_exhausted != "stop":
            rest = judged.steps_from(step + 1)
            [images[step]] = await self._load([judged.image])
        if any(each.prompt is not None for each in rest):
            given = (*inputs, *images.values())
            drawn, drawings = await self._draw(Plan(rest), given, begun)
            images = {**images, **drawn} if drawn else {}
        request, chosen = PlanRequest(judged.request, inputs), tuple(images.items())
        return RequestOutcome(judged.prompt_id, request, judged.plan, chosen), drawings

    async def _draw(
        self, plan: Plan, given: tuple[EncodedImage, ...], begun: tuple[int, str]
    ) -> tuple[dict[int, EncodedImage], int]:
        """As `drawn_images`."""
        loop = Loop(self.calls, self.settings, self.judged.prompt_id, plan, given, begun=begun)
        if self.answers is None:
            return await drawn_images(loop)
        return await drawn_by_policy(loop, self.answers)

    @property
    def _is_redrawn(self) -> bool:
        return not self.accepted and self.judged.iteration + 1 < self.settings.t_max

    async def _load(self, hashes: Iterable[str]) -> tuple[EncodedImage, ...]:
        return tuple([await self.calls.image(sha256) for sha256 in hashes])


def reuse_recorded_calls(calls: ModelCalls, attempts: Iterable[JudgedAttempt]) -> None:
    """Of their trajectories: what goes on as recorded is neither drawn nor judged again."""
    prompts = defaultdict[str, set[str]](set)
    for attempt in attempts:
        prompts[attempt.shard].add(attempt.prompt_id)
    for shard, of_shard in prompts.items():
        calls.reuse("trajectories", shard, of_shard)


def judged_attempts(home: Home, attempts: Collection[str]) -> dict[str, JudgedAttempt]:
    """Attempts of recorded trajectories, as `trajectory/step/iteration`; those of other homes are
    left out."""
    verify_referenced(home, _RECORDED)
    with closing(connect(home)) as connection:
        sql = f"{_RECORDED} WHERE id IN (SELECT unnest($1))"
        rows = connection.sql(sql, params=[list(attempts)]).to_arrow_table().to_pylist()
    return {row.pop("id"): _judged_attempt(row) for row in rows}


def _judged_attempt(row: dict[str, Any]) -> JudgedAttempt:
    plan = Plan(tuple(PlanStep(**step) for step in row.pop("steps")))
    earlier = {each["step_number"]: each["image"] for each in row.pop("earlier") or ()}
    return JudgedAttempt(
        request=row.pop("text"),
        input_images=tuple(row.pop("input_images")),
        plan=plan,
        earlier=dict(sorted(earlier.items())),
        **row,
    )
