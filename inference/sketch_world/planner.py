"""The teacher planner: from the words of a request to a plan.

It knows the stories of `stories/` and reads requests word by word: which story, which colours,
kinds and numbers, how many steps, captions or not. Input images are read from their pixels and
continued or described. Where no story matches, it draws the things that the request names.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

from ..roles import Plan, PlanRequest, PlanStep, UnusableAnswerError
from .object_catalog import PLACES
from .outlines import Outline, outline_request
from .perception import perceive_cached
from .prompt_writer import choose_style, join_with_and, phrase_noun, with_article, write_prompt
from .request_parser import RequestText
from .scene import Move, Scene, scene_after
from .seeded_random import KeyedRandom
from .settings import hashed_name

_REVISION = 3  # raise when the planner's behaviour changes
_SURFACES = {"paper": "a sheet of paper", "snow": "a snowy field", "rain": "a rainy day"}


@cache
def model_name() -> str:
    """Changes with the stories and the synonyms that requests are matched with."""
    folder = Path(__file__).parent
    words = (folder / f"{name}.yaml" for name in ("words", "instructions", "english"))
    sources = [*sorted((folder / "stories").glob("*.yaml")), *words]
    return hashed_name(f"sketch-planner-{_REVISION}", *(path.read_bytes() for path in sources))


def write_plan(request: PlanRequest) -> Plan:
    """Write the steps that answer a request. Deterministic.

    Raises:
        UnusableAnswerError: the request names nothing that the sketch world can draw.
        BadImageError: an input image cannot be decoded.
    """
    text = RequestText(request.text)
    scenes = [perceive_cached(image).scene for image in request.images]
    if scenes and text.wants_words_only:
        descriptions = (_text_step(n, "picture", scene) for n, scene in enumerate(scenes, 1))
        return Plan(tuple(descriptions), "The request asks for words about the given pictures.")
    before = scenes[-1] if scenes else None
    outline = outline_request(text, before)
    if not outline.steps:
        reason = " ".join(outline.remarks) or (
            "name a story (grow a flower, phases of the moon ...) or things to draw (a red house)"
        )
        raise UnusableAnswerError(f"nothing to draw in {text.raw[:80]!r}: {reason}")
    completed = (text.completed_steps or len(scenes)) if scenes else 0
    plan = _write_prompts(outline, before, text, completed)
    describes_first = text.wants_description and not scenes
    return _with_description(plan, outline) if describes_first else plan


def _write_prompts(
    outline: Outline, before: Scene | None, text: RequestText, completed: int
) -> Plan:
    """The outline's steps with prompts, numbered from `completed` + 1."""
    keyed_random = KeyedRandom(text.raw)
    first_open_step = _first_open_step(outline, keyed_random)
    steps, scene = [], before
    for index, step in enumerate(outline.steps):
        style = choose_style(keyed_random, index, first_open_step=first_open_step)
        prompt = write_prompt(step.edits, scene, style, keyed_random)
        caption = step.caption if text.wants_captions else None
        steps.append(PlanStep(completed + index + 1, step.name, step.instruction, prompt, caption))
        scene = scene_after(step.edits, scene)
    return Plan(tuple(steps), _reasoning(outline, text))


def _first_open_step(outline: Outline, keyed_random: KeyedRandom) -> int:
    """Index of the first step whose prompt names no cells; later steps cannot rely on cells."""
    steps = outline.steps
    if not outline.any_place or keyed_random.bernoulli(0.3, "all places told"):
        return len(steps)
    moves = [n for n, step in enumerate(steps) if any(isinstance(e, Move) for e in step.edits)]
    earliest = moves[-1] + 1 if moves else 0
    return keyed_random.pick(range(earliest, len(steps) + 1), "first open place")


def _reasoning(outline: Outline, text: RequestText) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in outline.values.items())
    choices = f" My choices: {values}." if values else ""
    captions = " Every picture gets a caption." if text.wants_captions else ""
    count = len(outline.steps)
    return f"The request is about {outline.title}.{choices} It takes {count} pictures.{captions}"


def _with_description(plan: Plan, outline: Outline) -> Plan:
    """The plan after a text-only step that describes its final image."""
    opening = _text_step(1, "scene", outline.final_scene(None) or Scene())
    others = (replace(step, step_number=step.step_number + 1) for step in plan.steps)
    return Plan((opening, *others), f"{plan.reasoning} First I describe it in words.")


def _text_step(number: int, noun: str, scene: Scene) -> PlanStep:
    surface = _SURFACES.get(scene.background, with_article(scene.background))
    things = [
        f"{with_article(phrase_noun(t.kind, t.colour))} in the {PLACES[cell]}"
        for cell, t in sorted(scene.cells.items())
    ]
    contents = join_with_and(things) if things else "nothing on it"
    text = f"The picture shows {surface} with {contents}."
    return PlanStep(number, f"Describe the {noun}", None, None, text)
