"""Outlines: the steps of a plan as exact edits and texts, before their prompts are written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .object_catalog import KINDS
from .prompt_parser import parse
from .prompt_writer import creation, join_with_and, phrase_noun, with_article
from .request_parser import Mention, RequestText
from .scene import (
    Add,
    Command,
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
from .scene_edits import carry_out
from .seeded_random import KeyedRandom
from .story_catalog import CatalogStory, Values, fill_text

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
    """Steps of a plan before prompts are written.

    Attributes:
        any_place: cells do not matter: prompts may leave them open.
        values: the values of the story's slots.
    """

    title: str
    steps: tuple[OutlineStep, ...]
    any_place: bool
    values: Values


def outline_story(story: CatalogStory, values: Values) -> Outline:
    """A story with its slots filled."""
    steps = (
        OutlineStep(s.name, s.say, s.tell, parse(s.draw).edits) for s in story.fill_steps(values)
    )
    return Outline(fill_text(story.title, values), tuple(steps), story.free, values)


def outline_mentions(text: RequestText, keyed_random: KeyedRandom) -> Outline | None:
    """A scene of the things that the request names; None: nothing that can be drawn."""
    things = mentioned_things(text)
    backgrounds = text.names_of("background")
    if not things and not backgrounds:
        return None
    background = (
        backgrounds[0] if backgrounds else keyed_random.pick(("meadow", "paper"), "background")
    )
    kinds = {thing.kind for thing in things}
    extras = [Add(kind) for kind in _EXTRAS.get(background, _DEFAULT_EXTRAS) if kind not in kinds]
    things = [*things, *extras][: max(_MIN_THINGS, len(things))]
    first, *others = _assign_cells(things, Scene(background), keyed_random)
    opening = replace(_step_adding(first), edits=(Create(background, (first,)),))
    title = f"{_list_things(things)} (background: {background})"
    return Outline(title, (opening, *map(_step_adding, others)), any_place=True, values={})


def outline_additions(text: RequestText, scene: Scene, keyed_random: KeyedRandom) -> Outline | None:
    """The things that the request names, added to an existing scene; None: there are none."""
    things = mentioned_things(text)[: len(scene.free_cells())]
    if not things:
        return None
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


def scene_after(edits: Sequence[Edit], before: Scene | None) -> Scene | None:
    """The scene after the edits (first interpretations); None: one of them is impossible."""
    result = carry_out(Command(tuple(edits)), before, lambda _, options: options[0])
    return None if result.impossible else result.scene


def is_achievable(steps: Sequence[OutlineStep], scene: Scene | None) -> bool:
    """Whether every step is possible and changes the scene."""
    for step in steps:
        after = scene_after(step.edits, scene)
        if after is None or after == scene:
            return False
        scene = after
    return True


def avoid_occupied_cells(steps: Sequence[OutlineStep], scene: Scene) -> tuple[OutlineStep, ...]:
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
    (create,) = first.edits if len(first.edits) == 1 else (None,)
    if not isinstance(create, Create) or len(create.things) < 2:
        return None
    *others, last = create.things
    opening = replace(first, edits=(Create(create.background, tuple(others)),))
    return [opening, _step_adding(last)]


def _merge_neighbours(steps: Sequence[OutlineStep]) -> list[OutlineStep]:
    """Every two neighbours as one step."""
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
        edits = (creation(after),) if before is None else edits_between(before, after) or edits
    instruction = f"{first.instruction} {second.instruction}"
    return OutlineStep(second.name, instruction, f"{first.caption} {second.caption}", edits)


def edits_between(before: Scene, after: Scene) -> tuple[Edit, ...]:
    """Exact edits that turn one scene into another."""
    removed = {c: t for c, t in before.cells.items() if c not in after.cells}
    edits: list[Edit] = []
    if before.background != after.background:
        edits.append(SetBackground(after.background))
    for cell, new in sorted(after.cells.items()):
        start = next((c for c, t in removed.items() if t == new and cell not in before.cells), None)
        if start is not None:
            removed.pop(start)
            edits.append(Move(Target(new.kind, new.colour, start), GridPlace(cell)))
        else:
            edits += _cell_edits(cell, before.cells.get(cell), new)
    removals = (Remove(Target(t.kind, t.colour, c)) for c, t in sorted(removed.items()))
    return (*edits, *removals)


def _cell_edits(cell: int, old: Thing | None, new: Thing) -> list[Edit]:
    if old is None:
        return [Add(new.kind, new.colour, GridPlace(cell))]
    if old == new:
        return []
    target = Target(old.kind, old.colour, cell)
    if old.kind == new.kind:
        return [Recolour(target, new.colour)]
    return [Replace(target, new.kind, new.colour)]


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
        rows = (0, 1, 2) if thing.kind in _FLYING else (2, 1, 0)
        row = next(row for row in rows if any(cell // 3 == row for cell in free))
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
