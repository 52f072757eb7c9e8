"""The planner-critic loop over one plan (InterleaveThinker, section 3.1).

    I_0 = the last input picture, or none
    C   = the input pictures, if `conditioning` is `all`
    for every step i of the plan:
        r_0 = the step's prompt
        for t = 0 .. T_max - 1:
            I   = generator(r_t, I_{i-1})             # with `all`: generator(r_t, C)
            accepted, r_{t+1} = critic(I_{i-1}, I, goal = r_0, made by = r_t; "" at t = 0)
            if accepted: break
        I_i = the accepted picture, or what `on_exhausted` says; it joins C

With several candidates each attempt draws that many pictures of one prompt, and the first that is
accepted counts. The loop is an event stream: it decides, and leaves it to its listeners to write
rows or to show a user what is going on.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from warehouse import EncodedImage

from .engine.calls import CallSite, ModelCalls
from .engine.gather_or_cancel import gather_or_cancel
from .engine.hashing import attempt_seed
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
from .settings import LoopSettings
from .speculation import DrawKey, SpeculativeDraw


@dataclass(frozen=True)
class PlannedRequest:
    """A request and its plan, ready to be told."""

    prompt_id: str
    plan: Plan
    inputs: tuple[EncodedImage, ...] = ()


@dataclass(frozen=True)
class Loop:
    """One run of the loop.

    Iterating `events()` raises what its calls raise: `UnusableAnswerError`, `CallFailed`.

    Args:
        candidates: pictures drawn (and judged) at once for each prompt of a step.
        ahead: draw the next step's first picture while the critic looks at this one's, where the
            generator has nothing better to do; the story stays the same.
    """

    story: PlannedRequest
    calls: ModelCalls
    settings: LoopSettings
    candidates: int = 1
    ahead: bool = False

    async def events(self) -> AsyncGenerator[Event, None]:
        """Tell the story."""
        check_plan(self.story.plan, self.settings.max_steps)
        ahead = SpeculativeDraw(self._may_draw_ahead)
        try:
            async for event in self._told(ahead):
                yield event
        finally:
            await ahead.close()

    async def _told(self, ahead: SpeculativeDraw) -> AsyncGenerator[Event, None]:
        pictures = list(self.story.inputs)
        exhausted = False
        for step in self.story.plan.steps:
            yield StepStarted(step)
            if step.prompt is None:
                yield TextEmitted(step, step.auxiliary_text or step.instruction or "")
                continue
            attempts = []
            async for event in self._attempts(step, step.prompt, pictures, ahead):
                yield event
                if isinstance(event, AttemptJudged):
                    attempts.append(event)
            chosen = next((each for each in attempts if each.verdict.accepted), None)
            if chosen:
                yield StepAccepted(step, chosen)
            else:
                exhausted, chosen = True, await self._choose(step.prompt, attempts)
                yield StepExhausted(step, chosen)
            if chosen is None:
                yield TrajectoryFinished("stopped", ahead.wasted)
                return
            pictures.append(chosen.draw.image)
        yield TrajectoryFinished("exhausted" if exhausted else "complete", ahead.wasted)

    async def _attempts(
        self,
        step: PlanStep,
        goal: str,
        pictures: Sequence[EncodedImage],
        ahead: SpeculativeDraw,
    ) -> AsyncGenerator[ImageGenerated | AttemptJudged, None]:
        """Draw, judge and refine until a picture is accepted or T_max is reached."""
        prompt = goal
        for attempt in range(self.settings.t_max):
            drawn = await self._candidates(step, attempt, prompt, pictures, ahead)
            self._draw_ahead(step, [*pictures, drawn[0].image], ahead)
            for each in drawn:
                yield each
            judged = await gather_or_cancel(*(self._judge(each, goal, attempt) for each in drawn))
            for verdict in judged:
                yield verdict
            if any(each.verdict.accepted for each in judged):
                return
            prompt = next(filter(None, map(_refined, judged)), prompt)
            if attempt + 1 < self.settings.t_max:
                ahead.give_up()

    async def _candidates(
        self,
        step: PlanStep,
        attempt: int,
        prompt: str,
        pictures: Sequence[EncodedImage],
        ahead: SpeculativeDraw,
    ) -> Sequence[ImageGenerated]:
        """The pictures of one attempt; `iteration` counts them through the whole step."""
        if attempt == 0 and (drawn := await ahead.take(self._draw_key(step, pictures))):
            return [drawn]
        first = attempt * self.candidates
        numbers = range(first, first + self.candidates)
        return await gather_or_cancel(
            *(self._draw(step, number, prompt, pictures) for number in numbers)
        )

    async def _draw(
        self, step: PlanStep, iteration: int, prompt: str, pictures: Sequence[EncodedImage]
    ) -> ImageGenerated:
        place = self._place(step, iteration)
        seed = attempt_seed(self.settings.seed, self.story.prompt_id, step.step_number, iteration)
        picture, call = await self.calls.generate(place, prompt, self._shown(pictures), seed)
        source = pictures[-1] if pictures else None
        return ImageGenerated(step, iteration, prompt, seed, source, picture, call)

    def _draw_ahead(
        self, step: PlanStep, pictures: Sequence[EncodedImage], ahead: SpeculativeDraw
    ) -> None:
        """Begin the next step's first picture as if the newest one had been accepted."""
        later = (each for each in self.story.plan.steps if each.step_number > step.step_number)
        following = next((each for each in later if each.prompt is not None), None)
        if following and following.prompt is not None:
            draw = partial(self._draw, following, 0, following.prompt, pictures)
            ahead.begin(self._draw_key(following, pictures), draw)

    def _may_draw_ahead(self) -> bool:
        return self.ahead and self.candidates == 1 and self.calls.generator_is_idle()

    def _draw_key(self, step: PlanStep, pictures: Sequence[EncodedImage]) -> DrawKey:
        return step.step_number, tuple(picture.sha256 for picture in self._shown(pictures))

    def _shown(self, pictures: Sequence[EncodedImage]) -> Sequence[EncodedImage]:
        """What the generator looks at, of the story's pictures so far."""
        most = max_reference_images(self.calls.roles.generator)
        if self.settings.conditioning == "last":
            most = 1
        return tuple(pictures if most is None else pictures[-most:])

    async def _judge(self, drawn: ImageGenerated, goal: str, attempt: int) -> AttemptJudged:
        place = self._place(drawn.step, drawn.iteration)
        rewritten = drawn.prompt if attempt else ""
        verdict, call = await self.calls.judge(place, drawn.source, drawn.image, goal, rewritten)
        return AttemptJudged(drawn, verdict, call)

    async def _choose(self, goal: str, attempts: list[AttemptJudged]) -> AttemptJudged | None:
        """What to go on with when every attempt was rejected."""
        match self.settings.on_exhausted:
            case "last":
                return attempts[-1]
            case "stop":
                return None
            case "best":
                grades = [await self._grade(goal, attempt.draw) for attempt in attempts]
                return attempts[grades.index(max(grades))]

    async def _grade(self, goal: str, drawn: ImageGenerated) -> float:
        place = self._place(drawn.step, drawn.iteration)
        return (await self.calls.score(place, drawn.source, drawn.image, goal)).answer.overall

    def _place(self, step: PlanStep, iteration: int) -> CallSite:
        return CallSite(self.story.prompt_id, step.step_number, iteration)


def _refined(judged: AttemptJudged) -> str:
    return judged.verdict.refined_prompt.strip()


def check_conditioning(settings: LoopSettings, generator: Generator) -> None:
    """Refuse a generator that would ignore all but the last of the pictures it is shown.

    Raises:
        BackendError: it would.
    """
    if settings.conditioning == "all" and max_reference_images(generator) == 1:
        raise BackendError(
            f"`loop.conditioning: all` needs a generator that looks at several pictures, and "
            f"{qualified_name(generator)} looks at the last one only: set it to last, or name another "
            "generator (`interleave generator list` shows those that can: references)"
        )


def check_plan(plan: Plan, max_steps: int) -> None:
    """Refuse what cannot be a story.

    Raises:
        BadAnswer: no steps, too many, or numbers that do not rise.
    """
    numbers = [step.step_number for step in plan.steps]
    if not numbers:
        raise UnusableAnswerError("the plan has no steps")
    if len(numbers) > max_steps:
        raise UnusableAnswerError(
            f"the plan has {len(numbers)} steps, more than max_steps = {max_steps}"
        )
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise UnusableAnswerError(f"the plan's step numbers do not rise: {numbers}")
