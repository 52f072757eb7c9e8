"""Rewards of the critic's answers: its prompts are drawn and scored."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from pydantic import Field

from inference.calls.ask import CallSite, ModelCalls
from inference.calls.hashing import stable_hash
from inference.calls.retry import summarize_error
from inference.loop import conditioning_images
from inference.roles import Generator, UnusableAnswerError, qualified_name
from inference.settings import Conditioning
from schemas.curation import Evaluation
from schemas.yaml_config import ConfigModel
from warehouse import EncodedImage, Home
from warehouse.atomic import atomic_write
from warehouse.sql import verify_referenced
from warehouse.views import connect

from . import reward
from .rollouts import RolloutResult

ASSIGNED = "generators.json"  # in the job's folder
_DREW = """
    SELECT row_id, generator
    FROM critic_rl JOIN attempts USING (trajectory_id, step_number, iteration)
"""

_IMAGES_SO_FAR = """
    SELECT id, list_concat(
        input_images,
        (SELECT coalesce(list(earlier.image ORDER BY earlier.step_number), [])
         FROM attempts earlier
         WHERE earlier.trajectory_id = judged.trajectory_id AND earlier.chosen
           AND earlier.step_number < judged.step_number)
    )
    FROM (SELECT concat_ws('/', trajectory_id, step_number, iteration) AS id, * FROM attempts)
         AS judged JOIN prompts USING (prompt_id)
"""


class CriticState(ConfigModel):
    """What the critic was shown, as in a row of `critic_rl`, and its ground truth."""

    origin_prompt: str = Field(description="The plan's prompt for the step")
    rewritten_prompt: str = Field(description="Prompt of the image; empty: the plan's prompt")
    origin_image: str = Field(description="sha256 of the image before, or of the white canvas")
    evaluation: Evaluation = Field(description="Ground truth of the judged image")
    later: tuple[str, ...] = Field(
        (), description="The policy's answers to the images that followed, in an episode"
    )

    @property
    def grades(self) -> reward.Grades:
        return reward.Grades(self.evaluation.semantics, self.evaluation.quality)


class _PromptRefusedError(Exception):
    """The generator gives no image for a prompt, whoever asks."""


class StepPart(NamedTuple):
    """The step part of a reward. `image`: drawn first; `problem`: why nothing could be drawn."""

    value: float
    image: str | None = None
    problem: str | None = None
    generator: str | None = None


class CriticReward:
    """Grades answers of the critic.

    Drawings and scores are journaled calls: answers to a row that are equal share them, also after
    a restart, and a failure is asked again.

    Args:
        calls: of this run; the rows that they are for stand for prompts.
        generator_of: the generator that draws for a row of `critic_rl`.
        conditioning: as in the loop (`loop.conditioning`).
        images_of: sha256 of the images so far of a row's trajectory, the last one last; none: only
            the row's own is known.
    """

    def __init__(
        self,
        calls: ModelCalls,
        generator_of: Callable[[str], Generator],
        settings: reward.RewardSettings,
        conditioning: Conditioning = "last",
        images_of: Callable[[str], tuple[str, ...]] = lambda _row: (),
    ) -> None:
        self.settings = settings
        self._calls, self._generator_of = calls, generator_of
        self._conditioning, self._images_of = conditioning, images_of

    async def grade(self, row_id: str, response: str, state: CriticState) -> RolloutResult:
        """An answer's parts and reward; masked where its image failed for another's fault."""
        answer = reward.parse_answer(response)
        result = await self._grade(answer, state, row_id)
        parts = result.parts
        return result._replace(
            verdict=answer.verdict if answer else None,
            refined_prompt=answer.refined_prompt if answer else None,
            truth=state.evaluation.success,
            reward=None if result.status == "masked" else reward.total_reward(parts, self.settings),
        )

    async def _grade(
        self, answer: reward.ParsedAnswer | None, state: CriticState, row_id: str
    ) -> RolloutResult:
        form, truth = self.settings.form, state.evaluation.success
        parts = reward.RewardParts(reward.format_reward(answer))
        if answer is None:
            return RolloutResult("malformed", parts)
        graded = replace(parts, accuracy=reward.accuracy_reward(answer.verdict, truth, form))
        if "step" in self.settings.without:
            return RolloutResult("scored", graded)
        try:
            step, image, problem, name = await self._step_part(row_id, answer, state)
        except Exception as error:  # of generator, scorer, grader or image store
            name = qualified_name(self._generator_of(row_id))
            return RolloutResult("masked", parts, error=summarize_error(error), generator=name)
        parts = replace(graded, step=step)
        return RolloutResult("scored", parts, image=image, error=problem, generator=name)

    async def _step_part(
        self, row_id: str, answer: reward.ParsedAnswer, state: CriticState
    ) -> StepPart:
        """What the next image gains over the judged one."""
        form = self.settings.form
        if not reward.needs_image(answer.verdict, state.evaluation.success, form):
            return StepPart(reward.neutral_step_reward(form))
        first_image, problem = None, None
        generator = self._generator_of(row_id)
        try:
            images = await self._images_before(row_id, state.origin_image, generator)
            prompt = next_prompt(answer, state)
            draw = partial(self._redraw, row_id, generator, images, state.origin_prompt, prompt)
            seeds = range(self.settings.seed, self.settings.seed + self.settings.draws)
            redraws = await asyncio.gather(*map(draw, seeds))
            first_image, grades = redraws[0][0], [each for _, each in redraws]
        except _PromptRefusedError as error:  # the policy's fault
            grades, problem = [reward.WORST], str(error)
        gain = fmean(reward.step_reward(state.grades, each, form) for each in grades)
        return StepPart(gain, first_image, problem, qualified_name(generator))

    async def _redraw(
        self,
        row_id: str,
        generator: Generator,
        images: tuple[EncodedImage, ...],
        goal: str,
        prompt: str,
        seed: int,
    ) -> tuple[str, reward.Grades]:
        """The sha256 of a prompt's image, and its grades against the plan's prompt."""
        calls = self._calls.with_roles(replace(self._calls.roles, generator=generator))
        site = CallSite(row_id)
        try:
            image = (await calls.generate(site, prompt, images, seed)).answer
        except UnusableAnswerError as error:
            raise _PromptRefusedError(summarize_error(error)) from error
        before = images[-1] if images else None
        score = (await calls.score(site, before, image, goal)).score
        return image.sha256, reward.Grades(score.semantics, score.quality)

    async def _images_before(
        self, row_id: str, origin: str, generator: Generator
    ) -> tuple[EncodedImage, ...]:
        """What is drawn from; nothing for the canvas that rows have where there was no image."""
        image = await self._calls.image(origin)
        if await asyncio.to_thread(lambda: image.is_white):
            return ()
        earlier = [await self._calls.image(sha256) for sha256 in self._images_of(row_id)[:-1]]
        # It may ask a server.
        return await asyncio.to_thread(
            conditioning_images, self._conditioning, generator, [*earlier, image]
        )


def attempt_of(row_id: str) -> str:
    """`trajectory/step/iteration` of a row of `critic_rl`, whose id ends with a copy's number."""
    return row_id.rpartition("/")[0]


def next_prompt(answer: reward.ParsedAnswer, state: CriticState) -> str:
    """Without a new prompt it is the previous one, as in the reference."""
    return answer.refined_prompt or state.rewritten_prompt or state.origin_prompt


def generators_of_rows(
    generators: Sequence[Generator], rows: Iterable[str], seed: int, home: Home, folder: Path
) -> Callable[[str], Generator]:
    """The generator of a row's id: one for a row, so that the rollouts of a group are comparable.

    Args:
        rows: ids of all rows that are trained on.
        seed: of the choice among several.
        home: its lake says which generator drew the picture that a row judges.
        folder: the job's; with several generators it keeps the choice, which a resumed run repeats
            whatever the lake holds by then.
    """
    if len(generators) == 1:
        return lambda _row: generators[0]
    by_name = {qualified_name(generator): generator for generator in generators}
    path = folder / ASSIGNED
    names = assign_generators(list(by_name), rows, seed, _drew(home))
    if path.is_file():
        names |= json.loads(path.read_text("utf-8"))
    atomic_write(path, json.dumps(names, indent=1))
    return lambda row: by_name[names[row]]


def assign_generators(
    names: Sequence[str], rows: Iterable[str], seed: int, drew: Mapping[str, str]
) -> dict[str, str]:
    """Row -> who drew its picture, where that is among `names`; else one by a hash."""
    return {
        row: drew[row] if drew.get(row) in names else names[_number(seed, row) % len(names)]
        for row in rows
    }


def images_so_far(home: Home, attempts: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Attempt -> sha256 of its trajectory's images before its step, input images included.

    Args:
        attempts: as `trajectory/step/iteration`; those of other lakes are left out.
    """
    verify_referenced(home, _IMAGES_SO_FAR)
    with closing(connect(home)) as connection:
        sql = f"{_IMAGES_SO_FAR} WHERE id IN (SELECT unnest($1))"
        rows = connection.execute(sql, [list(attempts)]).fetchall()
    return {attempt: tuple(images) for attempt, images in rows}


def _number(seed: int, row: str) -> int:
    return int(stable_hash("generator", seed, row), 16)


def _drew(home: Home) -> dict[str, str]:
    """Row of `critic_rl` -> generator of the picture that it judges."""
    verify_referenced(home, _DREW)
    with closing(connect(home)) as connection:
        return dict(connection.sql(_DREW).fetchall())
