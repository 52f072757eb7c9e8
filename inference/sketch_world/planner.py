"""The teacher planner: from the words of a request to a plan.

It knows the stories of `stories/` and reads requests word by word: which story, which colours,
kinds and numbers, how many steps, captions or not. Given pictures are read from their pixels and
continued or described. Where no story fits, it draws whatever the request names.
"""

from functools import cached_property
from pathlib import Path

from ..roles import Plan, PlanRequest, PlanStep, UnusableAnswerError
from .object_catalog import PLACES
from .outlines import (
    Outline,
    OutlineStep,
    achievable,
    fit,
    moved_aside,
    outline_additions,
    outline_mentions,
    outline_story,
    scene_after,
)
from .perception import perceive_cached
from .prompt_style import prompt_style_of, word
from .prompt_writer import listed, phrase_noun, with_article
from .request_parser import Reading
from .scene import Move, Scene
from .seeded_random import KeyedRandom
from .settings import model_name
from .story_catalog import CatalogStory, load_catalog

_REVISION = 2  # raise when the planner's behaviour changes
_SURFACES = {"paper": "a sheet of paper", "snow": "a snowy field", "rain": "a rainy day"}


class SketchPlanner:
    """Plans stories of the sketch world; deterministic by the request."""

    backend = "sketch"

    @cached_property
    def model(self) -> str:
        """Changes with the stories and the words they are asked for with."""
        here = Path(__file__).parent
        sources = [*sorted((here / "stories").glob("*.yaml")), here / "words.yaml"]
        return model_name(f"sketch-planner-{_REVISION}", *(path.read_bytes() for path in sources))

    async def plan(self, request: PlanRequest) -> Plan:
        """Write the steps that answer a request.

        Raises:
            BadAnswer: the request names nothing that the sketch world can draw.
        """
        reading = Reading(request.text)
        scenes = [perceive_cached(picture).scene for picture in request.images]
        if scenes and reading.asks_for_words_only:
            return _description(scenes)
        chance = KeyedRandom(request.text)
        if scenes:
            return _continued(reading, scenes, chance)
        outline = _outline(reading, chance)
        drafts = _fitted(outline.drafts, reading)
        plan = _worded(outline, drafts, None, reading, chance)
        return _with_description(plan, drafts) if reading.describes else plan


def _outline(reading: Reading, chance: KeyedRandom) -> Outline:
    story = load_catalog().choose(reading)
    if story:
        return _told(story, reading, chance)
    outline = outline_mentions(reading, chance)
    if outline is None:
        raise UnusableAnswerError(
            f"nothing to draw in {reading.text[:80]!r}: name a story (grow a flower, phases of the "
            "moon ...) or things to draw (a red house and a cat)"
        )
    return outline


def _told(story: CatalogStory, reading: Reading, chance: KeyedRandom) -> Outline:
    """The story as asked for; with usual values where those asked for leave nothing to do."""
    outline = outline_story(story, story.fill(reading, chance))
    if achievable(outline.drafts, None):
        return outline
    return outline_story(story, story.fill(Reading(""), chance))


def _fitted(drafts: tuple[OutlineStep, ...], reading: Reading) -> tuple[OutlineStep, ...]:
    """The drafts in as many steps as were asked for, if a number was."""
    return fit(drafts, reading.step_count) if reading.step_count else drafts


def _worded(
    outline: Outline,
    drafts: tuple[OutlineStep, ...],
    before: Scene | None,
    reading: Reading,
    chance: KeyedRandom,
    earlier: int = 0,
) -> Plan:
    """Prompts for the drafts, numbered on from `earlier` steps."""
    first_open = _first_open(outline, drafts, chance)
    steps, scene = [], before
    for number, draft in enumerate(drafts):
        manner = prompt_style_of(chance, number, first_open=first_open)
        settled = number <= first_open
        prompt = word(draft.edits, scene, manner, chance, settled=settled)
        caption = draft.tell if reading.wants_captions else None
        steps.append(PlanStep(earlier + number + 1, draft.name, draft.say, prompt, caption))
        scene = scene_after(draft.edits, scene)
    return Plan(tuple(steps), _reasoning(outline, len(steps), reading))


def _first_open(outline: Outline, drafts: tuple[OutlineStep, ...], chance: KeyedRandom) -> int:
    """The step from which places are left open; once one is, no later one can count on cells."""
    if not outline.free or chance.happens(0.3, "all places told"):
        return len(drafts)
    moving = [n for n, d in enumerate(drafts) if any(isinstance(e, Move) for e in d.edits)]
    earliest = moving[-1] + 1 if moving else 0
    return chance.pick(range(earliest, len(drafts) + 1), "first open place")


def _reasoning(outline: Outline, count: int, reading: Reading) -> str:
    details = ", ".join(f"{name} = {value}" for name, value in outline.values.items())
    chosen = f" My choices: {details}." if details else ""
    captions = " Every picture gets a caption." if reading.wants_captions else ""
    return f"The request is about {outline.title}.{chosen} It takes {count} pictures.{captions}"


def _description(scenes: list[Scene]) -> Plan:
    steps = (
        PlanStep(number, "Describe the picture", None, None, describe(scene))
        for number, scene in enumerate(scenes, 1)
    )
    return Plan(tuple(steps), "The request asks for words about the given pictures.")


def _with_description(plan: Plan, drafts: tuple[OutlineStep, ...]) -> Plan:
    """The plan, opened by words about the picture it will end in."""
    final = scene_after([edit for draft in drafts for edit in draft.edits], None)
    opening = PlanStep(1, "Describe the scene", None, None, describe(final or Scene()))
    later = (
        PlanStep(s.step_number + 1, s.step_name, s.instruction, s.prompt, s.auxiliary_text)
        for s in plan.steps
    )
    return Plan((opening, *later), f"{plan.reasoning} First I describe it in words.")


def describe(scene: Scene) -> str:
    """The scene in words, as a caption."""
    surface = _SURFACES.get(scene.background, with_article(scene.background))
    things = [
        f"{with_article(phrase_noun(t.kind, t.colour))} in the {PLACES[cell]}"
        for cell, t in sorted(scene.cells.items())
    ]
    if not things:
        return f"The picture shows {surface} with nothing on it."
    return f"The picture shows {surface} with {listed(things)}."


def _continued(reading: Reading, scenes: list[Scene], chance: KeyedRandom) -> Plan:
    """The rest of a story whose last picture so far is given; else the named things added."""
    scene = scenes[-1]
    earlier = reading.earlier_steps or len(scenes)
    story = load_catalog().choose(reading)
    outline = _rest_of(story, reading, scene, chance) if story else None
    outline = outline or outline_additions(reading, scene, chance)
    if outline is None:
        raise UnusableAnswerError(
            f"no way to go on from the given picture in {reading.text[:80]!r}: name a story that "
            "it belongs to, or things to add"
        )
    drafts = _fitted(outline.drafts, reading)
    return _worded(outline, drafts, scene, reading, chance, earlier)


def _rest_of(
    story: CatalogStory, reading: Reading, scene: Scene, chance: KeyedRandom
) -> Outline | None:
    """The story after the step that the scene shows."""
    for values in (story.fill(reading, chance), *story.fillings()):
        outline = outline_story(story, values)
        if rest := rest_after(outline, scene):
            return Outline(outline.title, rest, outline.free, values)
    return None


def rest_after(outline: Outline, scene: Scene) -> tuple[OutlineStep, ...]:
    """How the outline goes on from a scene; empty: it does not lead there, or no further."""
    rest = moved_aside(_after(outline, scene), scene)
    return rest if achievable(rest, scene) else ()


def _after(outline: Outline, scene: Scene) -> tuple[OutlineStep, ...]:
    """The drafts after the one whose outcome the scene is; none: it is no outcome of any."""
    told: Scene | None = None
    for done, draft in enumerate(outline.drafts, 1):
        told = scene_after(draft.edits, told)
        if told is not None and _alike(told, scene, outline.free):
            return outline.drafts[done:]
    return ()


def _alike(told: Scene, seen: Scene, free: bool) -> bool:
    """The same scene; where places do not matter, the same things."""
    if not free:
        return told == seen
    things = [sorted((t.kind, t.colour) for t in s.cells.values()) for s in (told, seen)]
    return told.background == seen.background and things[0] == things[1]
