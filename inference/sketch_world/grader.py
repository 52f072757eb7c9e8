"""The exact grader of the sketch world: plans and images against the goals of their request."""

from collections.abc import Iterator

import numpy as np

from warehouse import EncodedImage

from ..grading import PlanGrade
from ..roles import Plan, PlanRequest
from .goals import Goals, goals_of
from .perception import perceive_cached
from .prompt_parser import parse
from .scene import Scene
from .scene_edits import Choose, at_random, carry_out

_RANDOM_CHOICES = 4  # in addition to the one that always takes the first option


class SketchGrader:
    """Implements `Grader` by parsing prompts and perceiving images, without a model."""

    name = "sketch (exact)"

    async def grade_plan(self, request: PlanRequest, plan: Plan | None) -> PlanGrade:
        if plan is None:
            return PlanGrade(valid=False, correct=False)
        return PlanGrade(not plan_faults(request, plan), plan_is_correct(request, plan))

    async def grade_outcome(
        self, request: PlanRequest, plan: Plan | None, final: EncodedImage | None
    ) -> bool:
        """Whether the scene perceived in the image meets the goals and has no flaws."""
        if plan is None:
            return False
        perception = perceive_cached(final) if final else None
        if perception and (perception.crooked or perception.blemished):
            return False
        return goals_of(request).accept(perception.scene if perception else None)


def plan_faults(request: PlanRequest, plan: Plan) -> list[str]:
    """What is wrong with the form of a plan, in words; empty: it is valid.

    Steps must be numbered consecutively from the first that is missing, every prompt must be
    understood by the sketch world, and the numbers of images and captions must be as requested.
    """
    return list(_faults(goals_of(request), plan))


def plan_is_correct(request: PlanRequest, plan: Plan) -> bool:
    """Whether the prompts, carried out without mistakes, end in a requested scene.

    If a prompt is ambiguous, every interpretation must end in one; the first options and a few
    random (seeded) ones are checked.
    """
    goals = goals_of(request)
    before = perceive_cached(request.images[-1]).scene if request.images else None
    return all(goals.accept(_final_scene(plan, before, choose)) for choose in _choices())


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
        if step.prompt is None and not (step.auxiliary_text or step.instruction):
            yield f"step {step.step_number} has neither prompt nor text"
    if any(bool(step.auxiliary_text) != goals.captions for step in with_image):
        yield "captions are missing" if goals.captions else "captions were not requested"


def _choices() -> Iterator[Choose]:
    yield lambda _, options: options[0]
    for seed in range(_RANDOM_CHOICES):
        yield at_random(np.random.default_rng(seed))


def _final_scene(plan: Plan, before: Scene | None, choose: Choose) -> Scene | None:
    """The scene after the last step; None: no step draws."""
    prompts = [step.prompt for step in plan.steps if step.prompt is not None]
    scene = before
    for prompt in prompts:
        scene = carry_out(parse(prompt), scene, choose).scene
    return scene if prompts else None
