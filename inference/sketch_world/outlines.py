"""Drafts: a story as exact edits with words beside them, before its prompts are worded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .object_catalog import KINDS
from .prompt_parser import parse
from .prompt_writer import creation, listed, phrase_noun, with_article
from .request_parser import Mention, Reading
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
_USUAL_FINISHES = ("sun", "cloud", "bird")
_FINISHES = {
    "night sky": ("star", "crescent moon", "planet"),
    "rain": ("cloud", "raindrop", "umbrella"),
    "room": ("gift", "book", "ball"),
    "sea": ("sun", "boat", "fish"),
    "stage": ("person", "music note", "star"),
    "table": ("candle", "cup", "plate"),
}
_MOST_THINGS = 6


@dataclass(frozen=True)
class OutlineStep:
    """A step to come: its edits with every kind and place, and what is said about it."""

    name: str
    say: str
    tell: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Outline:
    """What will be told: `free` when places do not matter."""

    title: str
    drafts: tuple[OutlineStep, ...]
    free: bool
    values: Values


def outline_story(story: CatalogStory, values: Values) -> Outline:
    """A story's drafts with its slots filled."""
    drafts = (OutlineStep(s.name, s.say, s.tell, parse(s.draw).edits) for s in story.told(values))
    return Outline(fill_text(story.title, values), tuple(drafts), story.free, values)


def outline_mentions(reading: Reading, chance: KeyedRandom) -> Outline | None:
    """A scene of whatever the request names; None: it names nothing that can be drawn."""
    things = mentioned_things(reading)
    backgrounds = reading.named("background")
    if not things and not backgrounds:
        return None
    background = backgrounds[0] if backgrounds else chance.pick(("meadow", "paper"), "background")
    finishes = _FINISHES.get(background, _USUAL_FINISHES)
    spare = [Add(kind) for kind in finishes if kind not in {thing.kind for thing in things}]
    things = [*things, *spare][: max(3, len(things))]
    first, *others = _placed(things, Scene(background), chance)
    opening = replace(_draft_add(first), edits=(Create(background, (first,)),))
    title = f"{_named(things)} (background: {background})"
    return Outline(title, (opening, *_draft_adds(others)), free=True, values={})


def outline_additions(reading: Reading, scene: Scene, chance: KeyedRandom) -> Outline | None:
    """The named things, to be added to a picture that is there already."""
    things = mentioned_things(reading)[: len(scene.free_cells())]
    if not things:
        return None
    title = f"adding {_named(things)}"
    return Outline(title, tuple(_draft_adds(_placed(things, scene, chance))), free=True, values={})


def fit(drafts: Sequence[OutlineStep], count: int) -> tuple[OutlineStep, ...]:
    """The same story in `count` steps, or as close to it as its edits allow."""
    fitted = list(drafts)
    while len(fitted) < count and (opening := _split(fitted[0])):
        fitted[:1] = opening
    while len(fitted) > max(1, count):
        joined = _joined_pairs(fitted)
        at = min(range(len(joined)), key=lambda n: (n == 0, len(joined[n].edits)))
        fitted[at : at + 2] = [joined[at]]
    return tuple(fitted)


def scene_after(edits: Sequence[Edit], before: Scene | None) -> Scene | None:
    """The scene after the edits (first readings); None: one of them is impossible."""
    outcome = carry_out(Command(tuple(edits)), before, lambda _, options: options[0])
    return None if outcome.impossible else outcome.scene


def achievable(drafts: Sequence[OutlineStep], scene: Scene | None) -> bool:
    """Whether every step is possible and changes the picture."""
    for draft in drafts:
        after = scene_after(draft.edits, scene)
        if after is None or after == scene:
            return False
        scene = after
    return True


def moved_aside(drafts: Sequence[OutlineStep], scene: Scene) -> tuple[OutlineStep, ...]:
    """The drafts with new things put where the scene is free, instead of over others."""
    aside = []
    for draft in drafts:
        edits: list[Edit] = []
        for edit in draft.edits:
            free = scene.free_cells()
            if isinstance(edit, Add) and edit.place.cell not in free and free:
                edit = replace(edit, place=GridPlace(free[0]))
            edits.append(edit)
            scene = scene_after([edit], scene) or scene
        aside.append(replace(draft, edits=tuple(edits)))
    return tuple(aside)


def _split(first: OutlineStep) -> list[OutlineStep] | None:
    """An opening with several things as an opening with one less, and a step for the last."""
    (create,) = first.edits if len(first.edits) == 1 else (None,)
    if not isinstance(create, Create) or len(create.things) < 2:
        return None
    *kept, last = create.things
    opening = replace(first, edits=(Create(create.background, tuple(kept)),))
    return [opening, *_draft_adds([last])]


def _joined_pairs(drafts: Sequence[OutlineStep]) -> list[OutlineStep]:
    """Every two neighbours as one step."""
    joined, scene = [], None
    for first, second in pairwise(drafts):
        joined.append(_joined(first, second, scene))
        scene = scene_after(first.edits, scene)
    return joined


def _joined(first: OutlineStep, second: OutlineStep, before: Scene | None) -> OutlineStep:
    """Two steps as one that asks for what both come to, and not for the way there."""
    edits = first.edits + second.edits
    after = scene_after(edits, before)
    if after is not None:
        edits = (creation(after),) if before is None else difference(before, after) or edits
    return OutlineStep(
        second.name, f"{first.say} {second.say}", f"{first.tell} {second.tell}", edits
    )


def difference(before: Scene, after: Scene) -> tuple[Edit, ...]:
    """Exact edits that make one scene of another."""
    gone = {c: t for c, t in before.cells.items() if c not in after.cells}
    edits: list[Edit] = []
    if before.background != after.background:
        edits.append(SetBackground(after.background))
    for cell, new in sorted(after.cells.items()):
        start = next((c for c, t in gone.items() if t == new and cell not in before.cells), None)
        if start is not None:
            gone.pop(start)
            edits.append(Move(Target(new.kind, new.colour, start), GridPlace(cell)))
        else:
            edits += _cell_difference(cell, before.cells.get(cell), new)
    removals = (Remove(Target(t.kind, t.colour, c)) for c, t in sorted(gone.items()))
    return (*edits, *removals)


def _cell_difference(cell: int, old: Thing | None, new: Thing) -> list[Edit]:
    if old is None:
        return [Add(new.kind, new.colour, GridPlace(cell))]
    if old == new:
        return []
    target = Target(old.kind, old.colour, cell)
    if old.kind == new.kind:
        return [Recolour(target, new.colour)]
    return [Replace(target, new.kind, new.colour)]


def mentioned_things(reading: Reading) -> list[Add]:
    """Things named in the request, with number and colour where they stand right before."""
    things: list[Add] = []
    before: list[Mention] = []
    for mention in reading.mentions:
        if mention.sort == "thing":
            number = next((int(m.name) for m in before if m.sort == "number"), 1)
            colours = [m.name for m in before if m.sort == "colour"]
            legal = [c for c in colours if c in KINDS[mention.name].colours]
            things += [Add(mention.name, legal[-1] if legal else None)] * min(number, 3)
        before = [*before, mention] if mention.sort in ("number", "colour") else []
    return things[:_MOST_THINGS]


def _placed(things: Sequence[Add], scene: Scene, chance: KeyedRandom) -> list[Add]:
    """Each thing with a free cell that suits it: what flies on top, the rest on the ground."""
    free = scene.free_cells()
    placed = []
    for number, thing in enumerate(things):
        rows = (0, 1, 2) if thing.kind in _FLYING else (2, 1, 0)
        row = next(row for row in rows if any(cell // 3 == row for cell in free))
        cell = chance.pick([cell for cell in free if cell // 3 == row], f"cell {number}")
        free.remove(cell)
        colour = thing.colour or KINDS[thing.kind].colours[0]
        placed.append(Add(thing.kind, colour, GridPlace(cell)))
    return placed


def _draft_adds(adds: Sequence[Add]) -> list[OutlineStep]:
    return [_draft_add(add) for add in adds]


def _draft_add(add: Add) -> OutlineStep:
    noun = _noun(add)
    name = with_article(noun)
    return OutlineStep(name.capitalize(), f"Draw {name}.", f"Here is {name}.", (add,))


def _named(things: Sequence[Add]) -> str:
    return listed([with_article(_noun(thing)) for thing in things])


def _noun(add: Add) -> str:
    return phrase_noun(add.kind, add.colour)
