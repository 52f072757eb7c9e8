"""Is a plan valid, and would it lead to what was asked for if every step went well?"""

from collections.abc import Iterator

import numpy as np

from inference.roles import Plan, PlanRequest
from inference.sketch_world.goals import Goals, goals_of
from inference.sketch_world.perception import perceive_cached
from inference.sketch_world.prompt_parser import parse
from inference.sketch_world.scene import Scene
from inference.sketch_world.scene_edits import Choose, at_random, carry_out

_RANDOM_TELLINGS = 4  # beside the one that takes every first reading


def plan_faults(request: PlanRequest, plan: Plan) -> list[str]:
    """What is wrong with the form of a plan, in words; empty: it is valid.

    Steps are numbered one by one from the first that is due, every prompt is understood by the
    sketch world, and there are as many pictures and captions as asked for.
    """
    return list(_faults(goals_of(request), plan))


def plan_is_correct(request: PlanRequest, plan: Plan) -> bool:
    """Whether the prompts, carried out without mistakes, end in a scene that was asked for.

    Where a prompt leaves something open, it must come out right however that is read: a few
    readings by chance (always the same ones) stand for all.
    """
    goals = goals_of(request)
    given = perceive_cached(request.images[-1]).scene if request.images else None
    return all(goals.met_by(_told(plan, given, choose)) for choose in _choices())


def _faults(goals: Goals, plan: Plan) -> Iterator[str]:
    numbers = [step.step_number for step in plan.steps]
    if not numbers:
        yield "no steps"
    if numbers != list(range(goals.first_step, goals.first_step + len(numbers))):
        yield f"steps are numbered {numbers}, not on from {goals.first_step}"
    drawn = [step for step in plan.steps if step.prompt is not None]
    if goals.step_counts and len(drawn) not in goals.step_counts:
        yield f"{len(drawn)} pictures, {sorted(goals.step_counts)} were asked for"
    if goals.draws and not drawn:
        yield "nothing is drawn"
    for step in plan.steps:
        if step.prompt is not None and not parse(step.prompt).edits:
            yield f"step {step.step_number} is not understood: {step.prompt}"
        if step.prompt is None and not (step.auxiliary_text or step.instruction):
            yield f"step {step.step_number} neither draws nor tells anything"
    if any(bool(step.auxiliary_text) != goals.captions for step in drawn):
        yield "captions are missing" if goals.captions else "captions nobody asked for"


def _choices() -> Iterator[Choose]:
    yield lambda _, options: options[0]
    for seed in range(_RANDOM_TELLINGS):
        yield at_random(np.random.default_rng(seed))


def _told(plan: Plan, given: Scene | None, choose: Choose) -> Scene | None:
    """The last scene; None: no step draws."""
    scene, drawn = given, False
    for step in plan.steps:
        if step.prompt is not None:
            scene, drawn = carry_out(parse(step.prompt), scene, choose).scene, True
    return scene if drawn else None
