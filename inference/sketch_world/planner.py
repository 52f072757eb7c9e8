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
from .outlines import (
    Outline,
    OutlineStep,
    avoid_occupied_cells,
    fit_step_count,
    is_achievable,
    outline_additions,
    outline_mentions,
    outline_story,
    scene_after,
)
from .perception import perceive_cached
from .prompt_style import choose_style, write_prompt
from .prompt_writer import join_with_and, phrase_noun, with_article
from .request_parser import RequestText
from .scene import Move, Scene
from .seeded_random import KeyedRandom
from .settings import hashed_name
from .story_catalog import CatalogStory, load_catalog

_REVISION = 2  # raise when the planner's behaviour changes
_SURFACES = {"paper": "a sheet of paper", "snow": "a snowy field", "rain": "a rainy day"}


@cache
def model_name() -> str:
    """Changes with the stories and the synonyms that requests are matched with."""
    folder = Path(__file__).parent
    sources = [*sorted((folder / "stories").glob("*.yaml")), folder / "words.yaml"]
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
        return _description(scenes)
    keyed_random = KeyedRandom(request.text)
    if scenes:
        return _continue_from(scenes, text, keyed_random)
    outline = _outline(text, keyed_random)
    plan = _write_prompts(outline, None, text, keyed_random)
    return _with_description(plan, outline) if text.wants_description else plan


def _outline(text: RequestText, keyed_random: KeyedRandom) -> Outline:
    if story := load_catalog().choose(text):
        outline = _outline_story(story, text, keyed_random)
    elif mentions := outline_mentions(text, keyed_random):
        outline = mentions
    else:
        raise UnusableAnswerError(
            f"nothing to draw in {text.raw[:80]!r}: name a story (grow a flower, phases of the "
            "moon ...) or things to draw (a red house and a cat)"
        )
    return _with_step_count(outline, text)


def _outline_story(story: CatalogStory, text: RequestText, keyed_random: KeyedRandom) -> Outline:
    """The story with the requested values; with default ones if those leave nothing to do."""
    outline = outline_story(story, story.choose_values(text, keyed_random))
    if is_achievable(outline.steps, None):
        return outline
    return outline_story(story, story.choose_values(RequestText(""), keyed_random))


def _with_step_count(outline: Outline, text: RequestText) -> Outline:
    """The outline in the requested number of steps, if there is one."""
    if not text.step_count:
        return outline
    return replace(outline, steps=fit_step_count(outline.steps, text.step_count))


def _write_prompts(
    outline: Outline,
    before: Scene | None,
    text: RequestText,
    keyed_random: KeyedRandom,
    completed: int = 0,
) -> Plan:
    """The outline's steps with prompts, numbered from `completed` + 1."""
    first_open_step = _first_open_step(outline, keyed_random)
    steps, scene = [], before
    for index, step in enumerate(outline.steps):
        style = choose_style(keyed_random, index, first_open_step=first_open_step)
        cells_known = index <= first_open_step
        prompt = write_prompt(step.edits, scene, style, keyed_random, cells_known=cells_known)
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


def _description(scenes: list[Scene]) -> Plan:
    steps = (
        PlanStep(number, "Describe the picture", None, None, describe(scene))
        for number, scene in enumerate(scenes, 1)
    )
    return Plan(tuple(steps), "The request asks for words about the given pictures.")


def _with_description(plan: Plan, outline: Outline) -> Plan:
    """The plan after a text-only step that describes its final image."""
    final = scene_after([edit for step in outline.steps for edit in step.edits], None)
    opening = PlanStep(1, "Describe the scene", None, None, describe(final or Scene()))
    others = (replace(step, step_number=step.step_number + 1) for step in plan.steps)
    return Plan((opening, *others), f"{plan.reasoning} First I describe it in words.")


def describe(scene: Scene) -> str:
    """The scene in words, as a caption."""
    surface = _SURFACES.get(scene.background, with_article(scene.background))
    things = [
        f"{with_article(phrase_noun(t.kind, t.colour))} in the {PLACES[cell]}"
        for cell, t in sorted(scene.cells.items())
    ]
    if not things:
        return f"The picture shows {surface} with nothing on it."
    return f"The picture shows {surface} with {join_with_and(things)}."


def _continue_from(scenes: list[Scene], text: RequestText, keyed_random: KeyedRandom) -> Plan:
    """The remaining steps of a story whose images so far are given; else additions to the last."""
    scene = scenes[-1]
    story = load_catalog().choose(text)
    outline = _remaining_outline(story, text, scene, keyed_random) if story else None
    outline = outline or outline_additions(text, scene, keyed_random)
    if outline is None:
        raise UnusableAnswerError(
            f"cannot continue from the input image in {text.raw[:80]!r}: name a story that "
            "it belongs to, or things to add"
        )
    outline = _with_step_count(outline, text)
    completed = text.completed_steps or len(scenes)
    return _write_prompts(outline, scene, text, keyed_random, completed)


def _remaining_outline(
    story: CatalogStory, text: RequestText, scene: Scene, keyed_random: KeyedRandom
) -> Outline | None:
    """The story after the step that the scene shows."""
    for values in (story.choose_values(text, keyed_random), *story.all_values()):
        outline = outline_story(story, values)
        if steps := remaining_steps(outline, scene):
            return replace(outline, steps=steps)
    return None


def remaining_steps(outline: Outline, scene: Scene) -> tuple[OutlineStep, ...]:
    """The steps after the one that the scene shows; empty: it shows none, or the last one."""
    steps = avoid_occupied_cells(_steps_after(outline, scene), scene)
    return steps if is_achievable(steps, scene) else ()


def _steps_after(outline: Outline, scene: Scene) -> tuple[OutlineStep, ...]:
    current: Scene | None = None
    for count, step in enumerate(outline.steps, 1):
        current = scene_after(step.edits, current)
        if current is not None and _is_same(current, scene, outline.any_place):
            return outline.steps[count:]
    return ()


def _is_same(first: Scene, second: Scene, any_place: bool) -> bool:
    """Whether two scenes are equal; with `any_place`, whatever the cells of their things."""
    if not any_place:
        return first == second
    things = [sorted((t.kind, t.colour) for t in s.cells.values()) for s in (first, second)]
    return first.background == second.background and things[0] == things[1]
