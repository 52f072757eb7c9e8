"""Outlines: the steps of a plan as exact edits and texts, before their prompts are written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from ..roles import UnusableAnswerError
from .object_catalog import KINDS
from .prompt_parser import parse
from .prompt_writer import creation, join_with_and, phrase_noun, with_article
from .request_parser import Mention, RequestText
from .scene import (
    Add,
    Create,
    Edit,
    GridPlace,
    Move,
    Recolour,
    Remove,
    Replace,
    Scene,
    SetBackground,
    Target,
    Thing,
)
from .scene_edits import scene_after
from .seeded_random import KeyedRandom
from .story_catalog import CatalogStory, Values, choose_story, fill_text

_SKY = ("sun", "cloud", "star", "crescent moon", "half moon", "full moon", "new moon", "planet")
_FLYING = (*_SKY, "bird", "butterfly", "balloon", "rocket", "raindrop", "music note")
# Kinds that complete a scene of few named things, by its background.
_DEFAULT_EXTRAS = ("sun", "cloud", "bird")
_EXTRAS = {
    "night sky": ("star", "crescent moon", "planet"),
    "rain": ("cloud", "raindrop", "umbrella"),
    "room": ("gift", "book", "ball"),
    "sea": ("sun", "boat", "fish"),
    "stage": ("person", "music note", "star"),
    "table": ("candle", "cup", "plate"),
}
_MIN_THINGS, _MAX_THINGS = 3, 6
_MAX_OF_A_KIND = 3


@dataclass(frozen=True)
class OutlineStep:
    """A step before its prompt is written: edits with every kind and cell, and its texts."""

    name: str
    instruction: str
    caption: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Outline:
    """Steps of a plan before prompts are written, which may leave cells open with `any_place`."""

    title: str
    steps: tuple[OutlineStep, ...]
    any_place: bool
    values: Values  # of the story's slots

    def final_scene(self, before: Scene | None) -> Scene | None:
        """The scene after all steps; None: one of them is impossible."""
        return scene_after([edit for step in self.steps for edit in step.edits], before)


def outline_story(story: CatalogStory, values: Values) -> Outline:
    filled = story.fill_steps(values)
    steps = tuple(OutlineStep(s.name, s.say, s.tell, parse(s.draw).edits) for s in filled)
    return Outline(fill_text(story.title, values), steps, story.free, values)


def outline_request(text: RequestText, before: Scene | None) -> Outline:
    """The story that is requested, or what remains of it; else the things that are named.

    Raises:
        UnusableAnswerError: it names nothing to draw, or to add to the scene before.
    """
    keyed_random = KeyedRandom(text.raw)
    if story := choose_story(text):
        requested = story.choose_values(text, keyed_random)
        default = story.choose_values(RequestText(""), keyed_random)
        # other values if the requested ones leave nothing to do
        others = [default] if before is None else story.all_values()
        for values in chain([requested], others):
            if outline := remaining_outline(outline_story(story, values), before):
                return outline
    if before is None:
        return _outline_mentions(text, keyed_random)
    return _outline_additions(text, before, keyed_random)


def _outline_mentions(text: RequestText, keyed_random: KeyedRandom) -> Outline:
    things = mentioned_things(text)
    backgrounds = text.names_of("background")
    if not things and not backgrounds:
        raise UnusableAnswerError(
            f"nothing to draw in {text.raw[:80]!r}: name a story (grow a flower, phases of the "
            "moon ...) or things to draw (a red house and a cat)"
        )
    background = keyed_random.pick(backgrounds[:1] or ("meadow", "paper"), "background")
    kinds = {thing.kind for thing in things}
    extras = [Add(kind) for kind in _EXTRAS.get(background, _DEFAULT_EXTRAS) if kind not in kinds]
    things = [*things, *extras][: max(_MIN_THINGS, len(things))]
    first, *others = _assign_cells(things, Scene(background), keyed_random)
    opening = replace(_step_adding(first), edits=(Create(background, (first,)),))
    title = f"{_list_things(things)} (background: {background})"
    return Outline(title, (opening, *map(_step_adding, others)), any_place=True, values={})


def _outline_additions(text: RequestText, scene: Scene, keyed_random: KeyedRandom) -> Outline:
    things = mentioned_things(text)[: len(scene.free_cells())]
    if not things:
        raise UnusableAnswerError(
            f"cannot continue from the input image in {text.raw[:80]!r}: name a story that it "
            "belongs to, or things to add"
        )
    steps = tuple(map(_step_adding, _assign_cells(things, scene, keyed_random)))
    return Outline(f"adding {_list_things(things)}", steps, any_place=True, values={})


def fit_step_count(steps: Sequence[OutlineStep], count: int) -> tuple[OutlineStep, ...]:
    """Split or merge steps until there are `count`, or as close to it as the edits allow."""
    fitted = list(steps)
    while len(fitted) < count and (opening := _split_opening(fitted[0])):
        fitted[:1] = opening
    while len(fitted) > max(1, count):
        merged = _merge_neighbours(fitted)
        at = min(range(len(merged)), key=lambda n: (n == 0, len(merged[n].edits)))
        fitted[at : at + 2] = [merged[at]]
    return tuple(fitted)


def is_achievable(steps: Sequence[OutlineStep], scene: Scene | None) -> bool:
    """Whether every step is possible and changes the scene."""
    for step in steps:
        after = scene_after(step.edits, scene)
        if after is None or after == scene:
            return False
        scene = after
    return True


def remaining_outline(outline: Outline, before: Scene | None) -> Outline | None:
    """The outline, or its steps after the one that an image shows.

    None: they are impossible, or the image shows none of the steps, or the last one.
    """
    steps = outline.steps
    if before is not None:
        steps = _avoid_occupied_cells(_steps_after(outline, before), before)
    return replace(outline, steps=steps) if steps and is_achievable(steps, before) else None


def _steps_after(outline: Outline, scene: Scene) -> tuple[OutlineStep, ...]:
    current: Scene | None = None
    for count, step in enumerate(outline.steps, 1):
        current = scene_after(step.edits, current)
        if current is not None and current.key(outline.any_place) == scene.key(outline.any_place):
            return outline.steps[count:]
    return ()


def _avoid_occupied_cells(steps: Sequence[OutlineStep], scene: Scene) -> tuple[OutlineStep, ...]:
    """The steps with new things in free cells of the scene instead of over other things."""
    adapted = []
    for step in steps:
        edits: list[Edit] = []
        for edit in step.edits:
            free = scene.free_cells()
            if isinstance(edit, Add) and edit.place.cell not in free and free:
                edit = replace(edit, place=GridPlace(free[0]))
            edits.append(edit)
            scene = scene_after([edit], scene) or scene
        adapted.append(replace(step, edits=tuple(edits)))
    return tuple(adapted)


def _split_opening(first: OutlineStep) -> list[OutlineStep] | None:
    """An opening with several things as one with one thing less, and a step for the last."""
    match first.edits:
        case (Create(background, (_, *_, last) as things),):
            opening = replace(first, edits=(Create(background, things[:-1]),))
            return [opening, _step_adding(last)]
    return None


def _merge_neighbours(steps: Sequence[OutlineStep]) -> list[OutlineStep]:
    merged, scene = [], None
    for first, second in pairwise(steps):
        merged.append(_merge(first, second, scene))
        scene = scene_after(first.edits, scene)
    return merged


def _merge(first: OutlineStep, second: OutlineStep, before: Scene | None) -> OutlineStep:
    """Two steps as one whose edits lead directly to the scene after both."""
    edits = first.edits + second.edits
    after = scene_after(edits, before)
    if after is not None:
        edits = (creation(after),) if before is None else _edits_between(before, after) or edits
    instruction = f"{first.instruction} {second.instruction}"
    return OutlineStep(second.name, instruction, f"{first.caption} {second.caption}", edits)


def _edits_between(before: Scene, after: Scene) -> tuple[Edit, ...]:
    old = {cell: Target(t.kind, t.colour, cell) for cell, t in before.cells.items()}
    removed = [target for cell, target in old.items() if cell not in after.cells]
    edits: list[Edit] = []
    if before.background != after.background:
        edits.append(SetBackground(after.background))
    for cell, new in sorted(after.cells.items()):
        edits += _edit_into(new, cell, old.get(cell), removed)
    return (*edits, *(Remove(target) for target in before.exact_targets() if target in removed))


def _edit_into(new: Thing, cell: int, old: Target | None, removed: list[Target]) -> list[Edit]:
    """The edit that makes a thing, by moving one of `removed` if it is the same."""
    if old is None:
        same = next((t for t in removed if Thing(str(t.kind), str(t.colour)) == new), None)
        if same is None:
            return [Add(new.kind, new.colour, GridPlace(cell))]
        removed.remove(same)
        return [Move(same, GridPlace(cell))]
    if old.kind != new.kind:
        return [Replace(old, new.kind, new.colour)]
    return [Recolour(old, new.colour)] if old.colour != new.colour else []


def mentioned_things(text: RequestText) -> list[Add]:
    """Things named in the request, with the number and colour right before them."""
    things: list[Add] = []
    modifiers: list[Mention] = []
    for mention in text.mentions:
        if mention.sort == "thing":
            number = next((int(m.name) for m in modifiers if m.sort == "number"), 1)
            colours = [m.name for m in modifiers if m.sort == "colour"]
            legal = [c for c in colours if c in KINDS[mention.name].colours]
            thing = Add(mention.name, legal[-1] if legal else None)
            things += [thing] * min(number, _MAX_OF_A_KIND)
        modifiers = [*modifiers, mention] if mention.sort in ("number", "colour") else []
    return things[:_MAX_THINGS]


def _assign_cells(things: Sequence[Add], scene: Scene, keyed_random: KeyedRandom) -> list[Add]:
    """Each thing with a free cell: flying things from the top row down, others from the bottom."""
    free = scene.free_cells()
    adds = []
    for number, thing in enumerate(things):
        row = (min if thing.kind in _FLYING else max)(cell // 3 for cell in free)
        cell = keyed_random.pick([cell for cell in free if cell // 3 == row], f"cell {number}")
        free.remove(cell)
        colour = thing.colour or KINDS[thing.kind].default_colour
        adds.append(Add(thing.kind, colour, GridPlace(cell)))
    return adds


def _step_adding(add: Add) -> OutlineStep:
    noun = with_article(phrase_noun(add.kind, add.colour))
    return OutlineStep(noun.capitalize(), f"Draw {noun}.", f"Here is {noun}.", (add,))


def _list_things(things: Sequence[Add]) -> str:
    return join_with_and([with_article(phrase_noun(t.kind, t.colour)) for t in things])
