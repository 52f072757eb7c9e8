"""The planner-critic loop over one plan (InterleaveThinker, section 3.1).

    I_0 = the last input image, or none
    C   = the input images, if `conditioning` is `all`
    for every step i of the plan:
        r_0 = the step's prompt
        for t = 0 .. T_max - 1:
            I   = generator(r_t, I_{i-1})             # with `all`: generator(r_t, C)
            accepted, r_{t+1} = critic(I_{i-1}, I, goal = r_0, made by = r_t; "" at t = 0)
            if accepted: break
        I_i = the accepted image, or what `on_exhausted` says; it joins C

With several candidates each attempt draws that many images of one prompt, and the first accepted
one counts. The loop only decides and yields events; listeners write rows or show them to a user.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from schemas.trajectories import TrajectoryStatus
from warehouse import EncodedImage

from .calls.ask import CallSite, ModelCalls
from .calls.hashing import attempt_seed
from .calls.worker_pool import gather_or_cancel
from .events import (
    AttemptJudged,
    Event,
    ImageGenerated,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TextEmitted,
    TrajectoryFinished,
)
from .roles import (
    BackendError,
    Generator,
    Plan,
    PlanStep,
    UnusableAnswerError,
    max_reference_images,
    qualified_name,
)
from .settings import Conditioning, LoopSettings

_HEAD_START_SECONDS = 0.005  # of the critic, before the next step is drawn ahead

# What a draw depends on: step number, and the sha256 of the generator's input images.
DrawKey = tuple[int, tuple[str, ...]]


@dataclass
class SpeculativeDraw:
    """The next step's first image, drawn while the critic still judges this one's.

    It is used if the critic accepts, else discarded. A speculative draw has the prompt, images and
    seed of the later one, so that the trajectory is the same with and without.
    """

    discarded: list[asyncio.Task[ImageGenerated]] = field(default_factory=list)
    _key: DrawKey | None = None
    _task: asyncio.Task[ImageGenerated] | None = None

    def start(self, key: DrawKey, draw: Coroutine[Any, Any, ImageGenerated]) -> None:
        self._key, self._task = key, asyncio.create_task(draw)

    async def take(self, key: DrawKey) -> ImageGenerated | None:
        """The result of the speculative draw, if its key is `key`; else it is discarded."""
        if self._task and self._key == key:
            draw = await self._task
            self._task = None
            return draw
        self.discard()
        return None

    def discard(self) -> None:
        if self._task:
            self._task.cancel()
            self.discarded.append(self._task)
            self._task = None

    async def aclose(self) -> None:
        """Discard, and wait until no call is under way."""
        self.discard()
        await asyncio.gather(*self.discarded, return_exceptions=True)


@dataclass(frozen=True)
class Loop:
    """One run of the loop over one plan.

    Iterating `events()` raises what its calls raise: `UnusableAnswerError`, `CallFailedError`.
    """

    calls: ModelCalls
    settings: LoopSettings
    prompt_id: str
    plan: Plan
    images: tuple[EncodedImage, ...] = ()  # given with the request
    candidates: int = 1  # images drawn (and judged) at once for each prompt of a step
    draw_ahead: bool = False  # use `SpeculativeDraw` where a generator slot is free
    begun: tuple[int, str] = (0, "")  # first attempt at the first step, and its prompt
    _ahead: SpeculativeDraw = field(default_factory=SpeculativeDraw, init=False)

    async def events(self) -> AsyncGenerator[Event, None]:
        check_plan(self.plan, self.settings.max_steps)
        if self.settings.conditioning == "all":  # known from here on: a server may be asked
            await asyncio.to_thread(max_reference_images, self.calls.roles.generator)
        images = list(self.images)
        status: TrajectoryStatus = "complete"
        async with aclosing(self._ahead):
            for step in self.plan.steps:
                yield StepStarted(step)
                if step.prompt is None:
                    yield TextEmitted(step, step.text)
                    continue
                attempts = []
                async for event in self._attempts(step, step.prompt, images):
                    yield event
                    if isinstance(event, AttemptJudged):
                        attempts.append(event)
                chosen = next((each for each in attempts if each.verdict.accepted), None)
                if chosen:
                    yield StepAccepted(step, chosen)
                else:
                    chosen = await self._choose_rejected(step.prompt, attempts)
                    status = "exhausted" if chosen else "stopped"
                    yield StepExhausted(step, chosen)
                if chosen is None:
                    break
                images.append(chosen.draw.image)
            yield TrajectoryFinished(status, len(self._ahead.discarded))

    async def _attempts(
        self, step: PlanStep, goal: str, images: Sequence[EncodedImage]
    ) -> AsyncGenerator[ImageGenerated | AttemptJudged, None]:
        """Draw, judge and refine until an image is accepted or T_max is reached."""
        is_begun = bool(self.begun[1]) and step is self.plan.steps[0]
        first, prompt = self.begun if is_begun else (0, goal)
        for attempt in range(first, self.settings.t_max):
            draws = await self._draw_candidates(step, attempt, prompt, images)
            self._draw_next_step(step, [*images, draws[0].image])
            for draw in draws:
                yield draw
            verdicts = await gather_or_cancel(*(self._judge(each, goal, attempt) for each in draws))
            for verdict in verdicts:
                yield verdict
            if any(each.verdict.accepted for each in verdicts):
                return
            refined = (each.verdict.refined_prompt.strip() for each in verdicts)
            prompt = next(filter(None, refined), draws[0].prompt)
            if attempt + 1 < self.settings.t_max:
                self._ahead.discard()

    async def _draw_candidates(
        self, step: PlanStep, attempt: int, prompt: str, images: Sequence[EncodedImage]
    ) -> Sequence[ImageGenerated]:
        """The images of one attempt; `iteration` counts them over the attempts of the step."""
        if attempt == 0 and (draw := await self._ahead.take(self._draw_key(step, images))):
            return [draw]
        first = attempt * self.candidates
        return await gather_or_cancel(
            *(self._draw(step, first + n, prompt, images) for n in range(self.candidates))
        )

    async def _draw(
        self, step: PlanStep, iteration: int, prompt: str, images: Sequence[EncodedImage]
    ) -> ImageGenerated:
        site, seed = self._site(step, iteration), self._seed(step, iteration)
        image, call = await self.calls.generate(site, prompt, self._conditioning(images), seed)
        source = images[-1] if images else None
        return ImageGenerated(step, iteration, prompt, seed, source, image, call)

    def _seed(self, step: PlanStep, iteration: int) -> int:
        return attempt_seed(self.settings.seed, self.prompt_id, step.step_number, iteration)

    def _draw_next_step(self, step: PlanStep, images: Sequence[EncodedImage]) -> None:
        """Begin the next step's first draw as if the newest image had been accepted."""
        if not self.draw_ahead or self.candidates > 1 or not self.calls.caller.generator_is_idle():
            return
        for each in self.plan.steps:
            if each.step_number > step.step_number and each.prompt is not None:
                draw = self._draw_ahead(each, each.prompt, images)
                self._ahead.start(self._draw_key(each, images), draw)
                return

    async def _draw_ahead(
        self, step: PlanStep, prompt: str, images: Sequence[EncodedImage]
    ) -> ImageGenerated:
        """Draw after a moment, in which a journaled verdict comes: nothing is paid for in vain."""
        await asyncio.sleep(_HEAD_START_SECONDS)
        return await self._draw(step, 0, prompt, images)

    def _draw_key(self, step: PlanStep, images: Sequence[EncodedImage]) -> DrawKey:
        return step.step_number, tuple(image.sha256 for image in self._conditioning(images))

    def _conditioning(self, images: Sequence[EncodedImage]) -> Sequence[EncodedImage]:
        return conditioning_images(self.settings.conditioning, self.calls.roles.generator, images)

    async def _judge(self, draw: ImageGenerated, goal: str, attempt: int) -> AttemptJudged:
        site = self._site(draw.step, draw.iteration)
        rewritten = draw.prompt if attempt else ""
        verdict, call = await self.calls.judge(site, draw.source, draw.image, goal, rewritten)
        return AttemptJudged(draw, verdict, call)

    async def _choose_rejected(
        self, goal: str, attempts: list[AttemptJudged]
    ) -> AttemptJudged | None:
        """The attempt to continue from when all were rejected."""
        match self.settings.on_exhausted:
            case "last":
                return attempts[-1]
            case "stop":
                return None
            case "best":
                grades = [await self._grade(goal, attempt.draw) for attempt in attempts]
                return attempts[grades.index(max(grades))]

    async def _grade(self, goal: str, draw: ImageGenerated) -> float:
        site = self._site(draw.step, draw.iteration)
        return (await self.calls.score(site, draw.source, draw.image, goal)).score.overall

    def _site(self, step: PlanStep, iteration: int) -> CallSite:
        return CallSite(self.prompt_id, step.step_number, iteration)


def conditioning_images(
    conditioning: Conditioning, generator: Generator, images: Sequence[EncodedImage]
) -> tuple[EncodedImage, ...]:
    """Those of a trajectory's images so far that the generator gets; it may ask a server."""
    limit = max_reference_images(generator) if conditioning == "all" else 1
    return tuple(images if limit is None else images[-limit:])


def check_conditioning(settings: LoopSettings, generator: Generator) -> None:
    """Raise BackendError if a generator would ignore all but the last of its input images."""
    if settings.conditioning == "all" and max_reference_images(generator) == 1:
        raise BackendError(
            "`loop.conditioning: all` needs a generator that takes several images, and "
            f"{qualified_name(generator)} takes the last one only: set it to last, or choose "
            "another generator (`interleave generator list` shows those that can: references)"
        )


def check_plan(plan: Plan, max_steps: int) -> None:
    """Raise UnusableAnswerError if a plan has no steps, too many, or numbers that do not rise."""
    numbers = [step.step_number for step in plan.steps]
    if not numbers:
        raise UnusableAnswerError("the plan has no steps")
    if len(numbers) > max_steps:
        raise UnusableAnswerError(
            f"the plan has {len(numbers)} steps, more than max_steps = {max_steps}"
        )
    if any(following <= number for number, following in pairwise(numbers)):
        raise UnusableAnswerError(f"the plan's step numbers do not rise: {numbers}")


async def drawn_images(
    loop: Loop, before_judged: Callable[[ImageGenerated], None] = lambda _: None
) -> tuple[dict[int, EncodedImage], int]:
    """Run a loop to its end: chosen images by step, accepted or not, and the number of drawings.

    No image is of a plan that cannot be followed, or has a prompt that cannot be drawn.
    """
    chosen: dict[int, EncodedImage] = {}
    drawings = 0
    try:
        async with aclosing(loop.events()) as events:
            async for event in events:
                if isinstance(event, ImageGenerated):
                    drawings += 1
                    before_judged(event)
                if isinstance(event, StepAccepted | StepExhausted) and event.chosen:
                    chosen[event.step.step_number] = event.chosen.draw.image
    except UnusableAnswerError:
        return {}, drawings
    return chosen, drawings
