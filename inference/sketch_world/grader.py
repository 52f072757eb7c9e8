"""The exact grader of the sketch world: plans and images against the goals of their request.

A request leaves much open ("grow a flower": of which colour?). Its goals are the final scenes of
its story with every choice of slot values that agrees with what it names. Where the story leaves
places open, only the things count. A request that is spelled out requires what it says.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from schemas.trajectories import ModelCallRow
from warehouse import EncodedImage

from ..roles import OutcomeGrade, Plan, PlanGrade, PlanRequest, RequestOutcome
from .instructed_edits import are_followed
from .instructions import Instructions
from .outlines import Outline, fit_step_count, outline_request, outline_story, remaining_outline
from .perception import perceive_cached
from .prompt_parser import parse
from .request_parser import RequestText
from .scene import Choose, Scene, at_random, carry_out, first_option
from .story_catalog import choose_story

_RANDOM_CHOICES = 4  # in addition to the one that always takes the first option


class SketchGrader:
    """Implements `Grader` without a model."""

    name = "sketch (exact)"

    async def grade_plan(self, outcome: RequestOutcome) -> PlanGrade:
        request, plan = outcome.request, outcome.plan
        if plan is None:
            return PlanGrade(valid=False, correct=False)
        return PlanGrade(not plan_faults(request, plan), plan_is_correct(request, plan))

    async def grade_outcome(self, outcome: RequestOutcome) -> OutcomeGrade:
        """Whether the scene perceived in the last image meets the goals and has no flaws."""
        return OutcomeGrade(outcome.plan is not None and _is_right(outcome.request, outcome.final))

    def ledger(self) -> list[ModelCallRow]:
        return []


def _is_right(request: PlanRequest, final: EncodedImage | None) -> bool:
    perception = perceive_cached(final) if final else None
    if perception and (perception.crooked or perception.blemished):
        return False
    return goals_of(request).accept(perception.scene if perception else None)


@dataclass(frozen=True)
class Goals:
    """What satisfies a request: the end of a story, or that instructions are followed."""

    final_scenes: frozenset[Hashable]  # keys (`Scene.key`) of accepted ends of a story
    any_place: bool  # cells do not matter
    step_counts: frozenset[int]  # accepted numbers of images; empty: any
    first_step: int  # number of the plan's first step
    captions: bool  # every image needs a caption; else none may have one
    needs_images: bool = True  # False if the request asks for words only
    instructions: Instructions | None = None  # None: it is a story
    before: Scene | None = None  # that is changed

    def accept(self, scene: Scene | None) -> bool:
        """Whether a final scene satisfies the request; None: nothing was drawn."""
        if scene is None or not self.needs_images:
            return scene is None and not self.needs_images
        if self.instructions:
            return are_followed(self.instructions, self.before, scene)
        return scene.key(self.any_place) in self.final_scenes


@lru_cache(maxsize=4096)
def goals_of(request: PlanRequest) -> Goals:
    """The goals of a request; raises BadImageError."""
    text = RequestText(request.text)
    inputs = [perceive_cached(image).scene for image in request.images]
    if inputs and text.wants_words_only:
        return Goals(frozenset(), False, frozenset({0}), 1, captions=False, needs_images=False)
    before = inputs[-1] if inputs else None
    first_step = 1 + ((text.completed_steps or len(inputs)) if inputs else 0)
    planned = outline_request(text, before)
    counts = {text.step_count, len(planned.steps)} if text.step_count else set()
    outlines = [] if planned.instructions else _story_outlines(text, before)
    if text.step_count:  # the requested number, and the closest to it that the story allows
        fitted = (fit_step_count(each.steps, text.step_count, before) for each in outlines)
        counts |= set(map(len, fitted))
    any_place = all(outline.any_place for outline in outlines)
    ends = (outline.final_scene(before) for outline in outlines)
    return Goals(
        frozenset(end.key(any_place) for end in ends if end),
        any_place,
        frozenset(counts),
        first_step,
        text.wants_captions,
        instructions=planned.instructions,
        before=before,
    )


def _story_outlines(text: RequestText, before: Scene | None) -> list[Outline]:
    """The story with the requested values; as in the planner, with any where none is possible."""
    story = choose_story(text)
    if story is None:
        return []
    for source in (text, RequestText("")):
        outlines = (outline_story(story, values) for values in story.consistent_values(source))
        remaining = (remaining_outline(outline, before) for outline in outlines)
        if achievable := list(filter(None, remaining)):
            return achievable
    return []


def plan_faults(request: PlanRequest, plan: Plan) -> list[str]:
    """What is wrong with the form of a plan, in words; empty: it is valid."""
    return list(_faults(goals_of(request), plan))


def plan_is_correct(request: PlanRequest, plan: Plan) -> bool:
    """Whether the prompts, carried out without mistakes, end in a requested scene.

    Of ambiguous prompts, the first interpretations and a few random (seeded) ones must do so.
    """
    goals = goals_of(request)
    before = perceive_cached(request.images[-1]).scene if request.images else None
    randoms = (at_random(np.random.default_rng(seed)) for seed in range(_RANDOM_CHOICES))
    choices = (first_option, *randoms)
    return all(goals.accept(_final_scene(plan, before, choose)) for choose in choices)


def _faults(goals: Goals, plan: Plan) -> Iterator[str]:
    numbers = [step.step_number for step in plan.steps]
    if not numbers:
        yield "no steps"
    if numbers != list(range(goals.first_step, goals.first_step + len(numbers))):
        yield f"steps are numbered {numbers}, not consecutively from {goals.first_step}"
    with_image = [step for step in plan.steps if step.prompt is not None]
    if goals.step_counts and len(with_image) not in goals.step_counts:
        yield f"{len(with_image)} images, but {sorted(goals.step_counts)} were requested"
    if goals.needs_images and not with_image:
        yield "nothing is drawn"
    for step in plan.steps:
        if step.prompt is not None and not parse(step.prompt).edits:
            yield f"step {step.step_number} is not understood: {step.prompt}"
        if step.prompt is None and not step.text:
            yield f"step {step.step_number} has neither prompt nor text"
    if any(bool(step.auxiliary_text) != goals.captions for step in with_image):
        yield "captions are missing" if goals.captions else "captions were not requested"


def _final_scene(plan: Plan, before: Scene | None, choose: Choose) -> Scene | None:
    """The scene after the last step; None: no step draws."""
    prompts = [step.prompt for step in plan.steps if step.prompt is not None]
    scene = before
    for prompt in prompts:
        scene = carry_out(parse(prompt), scene, choose).scene
    return scene if prompts else None
