"""Rewards of the critic's answers by what becomes of the trajectory: the loop goes on with the
answer, to the end of the plan, and the step part is how it ended.

From the judged attempt on, the answer stands in place of the recorded verdict; all before it is as
recorded, and the profile's critic judges what follows. The paper rewards single steps, since whole
trajectories are too many drawings: this goes beyond it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
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

from .critic import CriticReward, CriticState, StepPart, next_prompt
from .reward import ParsedAnswer, RewardSettings, trajectory_reward

_RECORDED = """
    SELECT * FROM (
        SELECT concat_ws('/', trajectory_id, judged.step_number, iteration) AS id,
            judged.step_number, iteration, image, prompt_id, text, input_images,
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
        judged = self._attempts.get(row_id.rpartition("/")[0])
        if judged is None:
            raise FoundryError(
                f"row {row_id} is of no trajectory of this home: set reward.of to step"
            )
        generator = self._generator_of(row_id)
        calls = self._calls.with_roles(replace(self._calls.roles, generator=generator))
        play = partial(self._play_on, judged, calls, answer.verdict, next_prompt(answer, state))
        ends = await asyncio.gather(*map(play, range(self.settings.draws)))
        value = fmean(value for value, _ in ends)
        return StepPart(value, image=ends[0][1], generator=qualified_name(generator))

    async def _play_on(
        self, judged: JudgedAttempt, calls: ModelCalls, accepted: bool, prompt: str, number: int
    ) -> tuple[float, str | None]:
        """What a continuation is worth, and the sha256 of its last image."""
        settings = self._loop.model_copy(update={"seed": self._loop.seed + number})
        image_of = calls.image
        inputs = tuple([await image_of(sha256) for sha256 in judged.input_images])
        images = {step: await image_of(sha256) for step, sha256 in judged.earlier.items()}
        step, attempt = judged.step_number, judged.iteration + 1
        goes_on = not accepted and attempt < settings.t_max
        if not goes_on and (accepted or settings.on_exhausted != "stop"):
            images[step] = await image_of(judged.image)
        rest = Plan(judged.steps_from(step if goes_on else step + 1))
        drawings = 0
        if step in images or goes_on:
            begun = (attempt, prompt) if goes_on else (0, "")
            loop = Loop(
                calls, settings, judged.prompt_id, rest, (*inputs, *images.values()), begun=begun
            )
            images, drawings = await _drawn(loop, images)
        request = PlanRequest(judged.request, inputs)
        outcome = RequestOutcome(judged.prompt_id, request, judged.plan, tuple(images.items()))
        success = (await self._grader.grade_outcome(outcome)).success
        if success is None:
            raise FoundryError(f"{self._grader.name} gave no grade")
        value = trajectory_reward(success, drawings, judged.most_drawings(settings.t_max))
        return value, outcome.final.sha256 if outcome.final else None


async def _drawn(
    loop: Loop, images: Mapping[int, EncodedImage]
) -> tuple[dict[int, EncodedImage], int]:
    """The images with those that a loop draws; none where a prompt of its is refused."""
    if all(step.prompt is None for step in loop.plan.steps):
        return dict(images), 0
    drawn, drawings = await drawn_images(loop)
    return ({**images, **drawn} if drawn else {}), drawings


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
